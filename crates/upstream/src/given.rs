//! Attributes of files that S3 has put as headers, and gets back as it put them.
//!
//! Why:        a copying tool puts the time of its file as `mtime`, compares it the next time, and copies again what differs. What
//!             is put through S3 is read as what is found in the bucket is (attributes).
//! Layout:     the header `margay-put` of an entry, which neither S3 nor the bucket sees: names of headers, separated by commas,
//!             each with `=` and its text if that is not the form in which it is sent.
//! Invariants: G1 a header is taken only if the file has then what it says; else it stays user metadata.
//!             G2 S3 is told the text that it put as long as the file has what it says, and else what the file has.
//! Not here:   the forms (attributes).

use http::{HeaderMap, HeaderName, HeaderValue};
use margay_env::Timestamp;
use margay_rows::record::FileEntry;
use margay_rows::record::entry::{MODE_FIFO, MODE_SOCKET, MODE_SYMLINK};
use margay_volume::posix::SYMLINK_BYTES_MAX;
use margay_volume::{FileHeaders, Headers};

use crate::attributes::{ObjectAttributes, here, kind_of, owner_headers, parse_mode, parse_time};
use crate::packed::{USER, decoded, escaped};

const NOTE: &str = "margay-put";
const NAMES: [&str; 4] = ["mode", "uid", "gid", "mtime"];

/// What a file has, its mode as in its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified: Timestamp,
}

impl Owned {
    fn of(file: &FileEntry) -> Owned {
        Owned { mode: file.mode, uid: file.uid, gid: file.gid, modified: file.modified }
    }

    /// Whether a header says what the file has.
    fn is_said(&self, name: &str, text: &str) -> bool {
        match name {
            "mode" => parse_mode(text).map(here) == Some(self.mode),
            "uid" => text.parse() == Ok(self.uid),
            "gid" => text.parse() == Ok(self.gid),
            _ => parse_time(text) == Some(self.modified),
        }
    }

    /// A header as it is sent.
    fn sent(&self, name: &str) -> String {
        let sent = owner_headers((self.mode, self.uid, self.gid), self.modified);
        sent.into_iter().find(|(own, _)| *own == name).map(|(_, text)| text).unwrap_or_default()
    }
}

/// Notes in an entry's headers which of an object's headers say what the file has; returns their names.
pub(crate) fn note<'t>(
    headers: &mut Headers,
    owned: &Owned,
    text: impl Fn(&str) -> Option<&'t str>,
) -> Vec<&'static str> {
    let (mut names, mut noted) = (Vec::new(), Vec::new());
    for name in NAMES {
        let Some(text) = text(name).filter(|text| owned.is_said(name, text)) else { continue };
        let is_sent_so = owned.sent(name) == text;
        noted.push(if is_sent_so { name.to_owned() } else { format!("{name}={}", escaped(text.as_bytes())) });
        names.push(name);
    }
    if !noted.is_empty() {
        headers.insert(NOTE.to_owned(), noted.join(","));
    }
    names
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct PutHeaders;

/// Whether an object of so many bytes can be of this kind here. A device has a number in another header.
fn fits(mode: u32, size: u64) -> bool {
    match kind_of(mode) {
        MODE_SYMLINK => (1..=SYMLINK_BYTES_MAX as u64).contains(&size),
        MODE_FIFO | MODE_SOCKET => size == 0,
        _ => here(mode) == mode & !kind_of(mode),
    }
}

impl FileHeaders for PutHeaders {
    fn take(&self, file: &mut FileEntry) {
        let user = file.headers.iter().filter(|(name, _)| name.starts_with(USER));
        let header = |(name, text): (&String, &String)| {
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(text).ok()?))
        };
        let headers: HeaderMap = user.filter_map(header).collect();
        if headers.is_empty() {
            return;
        }
        let given = ObjectAttributes::of(&headers);
        if given.mode.is_some_and(|mode| fits(mode, file.size)) {
            file.mode = given.file_mode();
        }
        file.uid = given.uid.unwrap_or(file.uid);
        file.gid = given.gid.unwrap_or(file.gid);
        file.modified = given.modified.unwrap_or(file.modified);
        let owned = Owned::of(file);
        let text = |name: &str| headers.get(format!("{USER}{name}")).and_then(|text| text.to_str().ok());
        for name in note(&mut file.headers, &owned, text) {
            file.headers.remove(&format!("{USER}{name}"));
        }
    }

    fn tell(&self, file: &FileEntry, headers: &mut Headers) {
        let noted = headers.remove(NOTE);
        // A time that somebody has set, in the mount: when it was written is told anyhow.
        let noted = noted.or_else(|| (file.modified != file.changed).then(|| "mtime".to_owned()));
        let owned = Owned::of(file);
        for one in noted.iter().flat_map(|noted| noted.split(',')) {
            let (name, text) = one.split_once('=').unwrap_or((one, ""));
            let text = String::from_utf8(decoded(text.as_bytes())).unwrap_or_default();
            let told = if owned.is_said(name, &text) { text } else { owned.sent(name) };
            // Metadata that somebody has set under this name stays.
            headers.entry(format!("{USER}{name}")).or_insert(told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_rows::Ino;
    use margay_rows::record::Data;
    use margay_rows::record::entry::EMPTY_ETAG;

    fn taken(size: u64, pairs: &[(&str, &str)]) -> FileEntry {
        let headers = pairs.iter().map(|(name, text)| (format!("{USER}{name}"), (*text).to_owned())).collect();
        let data = Data::Inline(vec![b'x'; size as usize]);
        let mut file = FileEntry::new(Ino(1), size, EMPTY_ETAG, Timestamp(7), data, headers);
        PutHeaders.take(&mut file);
        file
    }

    fn told(file: &FileEntry) -> Vec<(String, String)> {
        let mut headers = file.headers.clone();
        PutHeaders.tell(file, &mut headers);
        let own = |(name, text): (String, String)| (name.strip_prefix(USER).map(str::to_owned).unwrap_or(name), text);
        headers.into_iter().map(own).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn what_was_put_is_told_until_the_file_has_something_else() {
        let put = [("colour", "red"), ("gid", "8"), ("mode", "33152"), ("mtime", "1500000000.5"), ("uid", "7")];
        let mut file = taken(3, &put);
        assert_eq!((file.mode, file.uid, file.gid), (0o600, 7, 8));
        assert_eq!(file.modified, Timestamp(1_500_000_000_500_000_000));
        assert_eq!(told(&file), pairs(&put));
        (file.mode, file.modified) = (0o640, Timestamp(1_600_000_000_000_000_000));
        let now = [("colour", "red"), ("gid", "8"), ("mode", "0100640"), ("mtime", "1600000000"), ("uid", "7")];
        assert_eq!(told(&file), pairs(&now));
        file.headers.insert("x-amz-meta-mtime".to_owned(), "odd".to_owned());
        assert!(told(&file).contains(&("mtime".to_owned(), "odd".to_owned())), "an attribute of the mount");
    }

    #[test]
    fn what_says_nothing_is_metadata() {
        for odd in [
            [("mode", "rwx"), ("mtime", "yesterday")],
            [("gid", "-1"), ("mode", "0060600")],
            [("mode", "0120777"), ("uid", "root")],
            [("mode", "9999999"), ("mtime", "99999999999999999999")],
        ] {
            let file = taken(0, &odd);
            assert_eq!((file.mode, file.uid, file.gid, file.modified), (0o644, 0, 0, Timestamp(7)), "{odd:?}");
            assert_eq!(told(&file), pairs(&odd));
        }
        assert!(told(&taken(3, &[])).is_empty());
        assert_eq!(taken(6, &[("mode", "0120777")]).mode, 0o120_777, "a link whose target is the content");
        let both = taken(3, &[("file-permissions", "0100600"), ("mode", "0100644")]);
        assert_eq!((both.mode, told(&both).len()), (0o600, 2), "the first one counts, and both are told");
    }

    proptest::proptest! {
        #[test]
        fn any_text_comes_back(name in 0..4_usize, text in "[ -~]{0,40}") {
            let put = [(NAMES[name], text.as_str())];
            proptest::prop_assert_eq!(told(&taken(3, &put)), pairs(&put));
        }
    }
}
