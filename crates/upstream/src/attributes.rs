//! Attributes of files as headers of objects, in the conventions of other mounts.
//!
//! Why:        what is written here is read by s3fs, TigrisFS, GeeseFS and rclone, and the other way round.
//! Source:     the headers of s3fs (mode, uid, gid, mtime), GeeseFS (rdev, --symlink-target) and AWS' gateways
//!             (file-permissions, file-owner, file-group, file-mtime), from their documentation and sources.
//! Invariants: N1 `mode` is written as `0` and the octal `st_mode`: s3fs and GeeseFS read it by its prefix, rclone as octal.
//!             N2 what does not parse is as if it was not there.
//! Not here:   which of a file's headers are kept as they are.

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LAST_MODIFIED};
use margay_client::upstream::{Described, Metadata, WRITE_ID};
use margay_env::Timestamp;
use margay_rows::record::{DirectoryEntry, FileEntry};
use margay_volume::Headers;

const MODE_KIND: u32 = 0o170_000;
const MODE_REGULAR: u32 = 0o100_000;
const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_SYMLINK: u32 = 0o120_000;
const NANOSECONDS: i64 = 1_000_000_000;
const USER: &str = "x-amz-meta-";

/// Attributes of an object; what it does not say is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectAttributes {
    /// Kind and rights.
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) device: Option<u32>,
    pub(crate) modified: Option<Timestamp>,
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(format!("{USER}{name}"))?.to_str().ok()
}

/// `mode`: octal with a leading 0; decimal if it is a valid `st_mode`; else octal.
fn parse_mode(text: &str) -> Option<u32> {
    let is_valid = |mode: &u32| *mode <= 0o177_777 && matches!(mode & MODE_KIND, 0 | 0o010_000..=0o140_000);
    if text.starts_with('0') {
        return u32::from_str_radix(text, 8).ok().filter(is_valid);
    }
    text.parse().ok().filter(is_valid).or_else(|| u32::from_str_radix(text, 8).ok().filter(is_valid))
}

/// `seconds[.fraction]`.
fn parse_time(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = seconds.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let fraction: i64 = digits.parse().ok()?;
    seconds.checked_mul(NANOSECONDS)?.checked_add(fraction).map(Timestamp)
}

impl ObjectAttributes {
    pub(crate) fn of(headers: &HeaderMap) -> ObjectAttributes {
        let number = |name: &str| text(headers, name)?.parse().ok();
        let octal = text(headers, "file-permissions").and_then(|mode| u32::from_str_radix(mode, 8).ok());
        let nanoseconds = text(headers, "file-mtime").and_then(|time| time.trim_end_matches("ns").parse().ok());
        let written = headers.get(LAST_MODIFIED).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let written = written.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let mode = octal.or_else(|| parse_mode(text(headers, "mode")?));
        let is_link = headers.contains_key("x-amz-meta---symlink-target");
        ObjectAttributes {
            mode: if is_link { Some(MODE_SYMLINK | 0o777) } else { mode },
            uid: number("file-owner").or_else(|| number("uid")),
            gid: number("file-group").or_else(|| number("gid")),
            device: number("rdev"),
            modified: nanoseconds
                .map(Timestamp)
                .or_else(|| parse_time(text(headers, "mtime")?))
                .or_else(|| Some(Timestamp(i64::try_from(written?.as_nanos()).ok()?))),
        }
    }

    /// Mode of a file in the form of its entry, where a regular one has no kind.
    pub(crate) fn file_mode(&self) -> u32 {
        let mode = self.mode.unwrap_or(0o644);
        match mode & MODE_KIND {
            MODE_REGULAR | MODE_DIRECTORY => mode & !MODE_KIND,
            _ => mode,
        }
    }

    pub(crate) fn rights_of_directory(&self) -> u32 {
        self.mode.map_or(0o755, |mode| mode & !MODE_KIND)
    }
}

/// Which write made an object, by its metadata; empty if that does not say.
pub(crate) fn write_id_of(there: &Described) -> &str {
    there.headers.get(WRITE_ID).and_then(|id| id.to_str().ok()).unwrap_or_default()
}

/// The headers of an object that an entry keeps beside its attributes.
pub(crate) fn kept_headers(headers: &HeaderMap) -> Headers {
    const OWN: [&str; 11] = [
        "mode",
        "uid",
        "gid",
        "mtime",
        "ctime",
        "atime",
        "rdev",
        "file-permissions",
        "file-owner",
        "file-group",
        "file-mtime",
    ];
    let is_kept = |name: &str| match name.strip_prefix(USER) {
        Some(own) => !OWN.contains(&own) && name != WRITE_ID.as_str(),
        None => is_plain(name),
    };
    let kept = headers.iter().filter(|(name, _)| is_kept(name.as_str()));
    kept.filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))).collect()
}

fn push(metadata: &mut Metadata, name: &str, value: &str) {
    // Stored headers were header values once.
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
        metadata.push((name, value));
    }
}

fn push_owner(metadata: &mut Metadata, (mode, uid, gid): (u32, u32, u32), modified: Option<Timestamp>) {
    push(metadata, "x-amz-meta-mode", &format!("0{mode:o}"));
    push(metadata, "x-amz-meta-uid", &uid.to_string());
    push(metadata, "x-amz-meta-gid", &gid.to_string());
    if let Some(Timestamp(time)) = modified {
        let (seconds, rest) = (time.div_euclid(NANOSECONDS), time.rem_euclid(NANOSECONDS));
        push(metadata, "x-amz-meta-mtime", &format!("{seconds}.{rest:09}"));
    }
}

/// The headers of a file's object.
pub(crate) fn of_file(file: &FileEntry, write_id: &str) -> Metadata {
    let mut metadata = Metadata::new();
    for (name, value) in file.headers.iter().filter(|(name, _)| name.starts_with(USER) || is_plain(name)) {
        push(&mut metadata, name, value);
    }
    let kind = if file.kind() == 0 { MODE_REGULAR } else { 0 };
    push_owner(&mut metadata, (kind | file.mode, file.uid, file.gid), Some(file.modified));
    if file.device != 0 {
        push(&mut metadata, "x-amz-meta-rdev", &file.device.to_string());
    }
    push(&mut metadata, WRITE_ID.as_str(), write_id);
    metadata
}

/// The headers of a directory's marker.
pub(crate) fn of_directory(entry: &DirectoryEntry, write_id: &str) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.push((CONTENT_TYPE, HeaderValue::from_static("application/x-directory")));
    push_owner(&mut metadata, (MODE_DIRECTORY | entry.mode, entry.uid, entry.gid), None);
    push(&mut metadata, WRITE_ID.as_str(), write_id);
    metadata
}

/// Headers that a request may name without a prefix.
fn is_plain(name: &str) -> bool {
    matches!(name, "content-type" | "content-encoding" | "content-disposition" | "cache-control" | "content-language")
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_rows::Ino;
    use margay_rows::record::Data;
    use margay_rows::record::entry::EMPTY_ETAG;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn headers_of_other_mounts_are_read() {
        let mode = |text: &'static str| ObjectAttributes::of(&headers(&[("x-amz-meta-mode", text)])).mode;
        assert_eq!(mode("0100644"), Some(0o100_644));
        assert_eq!(mode("33188"), Some(0o100_644), "decimal, as s3fs writes it");
        assert_eq!(mode("100755"), Some(0o100_755), "octal, as rclone writes it");
        assert_eq!((mode("x"), mode("0999")), (None, None));
        let aws = headers(&[
            ("x-amz-meta-file-permissions", "0100600"),
            ("x-amz-meta-file-owner", "7"),
            ("x-amz-meta-file-group", "8"),
            ("x-amz-meta-file-mtime", "1500000000000000001ns"),
        ]);
        let read = ObjectAttributes::of(&aws);
        assert_eq!((read.mode, read.uid, read.gid), (Some(0o100_600), Some(7), Some(8)));
        assert_eq!(read.modified, Some(Timestamp(1_500_000_000_000_000_001)));
        let time = |text: &'static str| ObjectAttributes::of(&headers(&[("x-amz-meta-mtime", text)])).modified;
        assert_eq!(time("1500000000.5"), Some(Timestamp(1_500_000_000_500_000_000)));
        assert_eq!(time("1500000000"), Some(Timestamp(1_500_000_000_000_000_000)));
        let dated = headers(&[("last-modified", "Fri, 14 Jul 2017 02:40:00 GMT")]);
        assert_eq!(ObjectAttributes::of(&dated).modified, Some(Timestamp(1_500_000_000_000_000_000)));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let now = Timestamp(-1);
        let mut file = FileEntry::new(Ino(1), 0, EMPTY_ETAG, now, Data::Inline(Vec::new()), Headers::new());
        (file.mode, file.uid, file.gid) = (0o640, 1000, 100);
        file.headers.insert("x-amz-meta-color".to_owned(), "red".to_owned());
        file.headers.insert("content-type".to_owned(), "text/plain".to_owned());
        let sent: HeaderMap = of_file(&file, "w").into_iter().collect();
        let read = ObjectAttributes::of(&sent);
        assert_eq!((read.file_mode(), read.uid, read.gid), (0o640, Some(1000), Some(100)));
        assert_eq!(read.modified, Some(now));
        assert_eq!(kept_headers(&sent), file.headers);
        let entry = DirectoryEntry { mode: 0o700, ..DirectoryEntry::implicit(Ino(2)) };
        let sent: HeaderMap = of_directory(&entry, "w").into_iter().collect();
        assert_eq!(ObjectAttributes::of(&sent).rights_of_directory(), 0o700);
    }
}
