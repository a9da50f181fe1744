//! Attributes of files as headers of objects, in the conventions of other mounts.
//!
//! Why:        what is written here is read by s3fs, TigrisFS, GeeseFS and rclone, and the other way round.
//! Source:     the headers of s3fs (mode, uid, gid, mtime), GeeseFS (rdev, --symlink-target), AWS' gateways (file-permissions,
//!             file-owner, file-group, file-mtime), mc and s3cmd (mc-attrs, s3cmd-attrs) and gsutil (goog-reserved-*), from
//!             their documentation and sources.
//! Invariants: N1 `mode` is written as `0` and the octal `st_mode`: s3fs and GeeseFS read it by its prefix, rclone as octal.
//!                `mtime` has a fraction only if it is not zero: GeeseFS reads none.
//!             N2 what does not parse is as if it was not there.
//! Not here:   which of a file's headers are kept as they are; attributes that no header holds (packed).

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LAST_MODIFIED};
use margay_client::upstream::{Described, Metadata, WRITE_ID};
use margay_env::Timestamp;
use margay_rows::record::{Data, DirectoryEntry, FileEntry};
use margay_volume::Headers;

use crate::packed::{self, USER, Xattr, decoded, escaped};
use crate::words;

const MODE_KIND: u32 = 0o170_000;
const MODE_REGULAR: u32 = 0o100_000;
const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_SYMLINK: u32 = 0o120_000;
/// Pipe, character device, directory, block device, file, link, socket.
const MODE_KINDS: [u32; 7] = [0o010_000, 0o020_000, MODE_DIRECTORY, 0o060_000, MODE_REGULAR, MODE_SYMLINK, 0o140_000];
const MODE_MAX: u32 = 0o177_777;
const NANOSECONDS: i64 = 1_000_000_000;
/// The target of a link, percent-encoded.
const TARGET: &str = "--symlink-target";
/// Longer targets are in the body only: user metadata has 2 KB.
const TARGET_BYTES_MAX: usize = 1024;
/// The type of an object that has none.
const DEFAULT_TYPE: &str = "binary/octet-stream";
/// Attributes of a file in one header each.
const LISTS: [&str; 2] = ["mc-attrs", "s3cmd-attrs"];
/// Metadata that stands for attributes of a file.
const OWN: [&str; 20] = [
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
    "file-atime",
    LISTS[0],
    LISTS[1],
    "goog-reserved-posix-mode",
    "goog-reserved-posix-uid",
    "goog-reserved-posix-gid",
    "goog-reserved-file-mtime",
    packed::PACKED,
    packed::PACKED_BY_S3FS,
];

/// Attributes of an object; what it does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectAttributes {
    /// Kind and rights.
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) device: Option<u32>,
    pub(crate) modified: Option<Timestamp>,
    /// Of a link whose body is not its target.
    pub(crate) target: Option<Vec<u8>>,
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(format!("{USER}{name}"))?.to_str().ok()
}

/// Whether some file can have this mode; without a kind it is a regular one.
fn is_valid(mode: &u32) -> bool {
    let kind = mode & MODE_KIND;
    *mode <= MODE_MAX && (kind == 0 || MODE_KINDS.contains(&kind))
}

/// `mode`: octal with a leading 0; decimal if it is a valid `st_mode`; else octal.
pub(crate) fn parse_mode(text: &str) -> Option<u32> {
    let octal = || u32::from_str_radix(text, 8).ok().filter(is_valid);
    if text.starts_with('0') {
        return octal();
    }
    text.parse().ok().filter(is_valid).or_else(octal)
}

/// `seconds[.fraction]`, or with whole nanoseconds behind a `#`, as mc has it.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = match text.split_once('#') {
        Some((seconds, nanoseconds)) => (seconds, nanoseconds.parse().ok().filter(|count| *count < NANOSECONDS)?),
        None => {
            let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
            let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
            (seconds, digits.parse().ok()?)
        }
    };
    let seconds: i64 = seconds.parse().ok()?;
    seconds.checked_mul(NANOSECONDS)?.checked_add(fraction).map(Timestamp)
}

/// An attribute in a list such as `mode:33188/mtime:1500000000/uid:7`.
fn listed<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lists = LISTS.into_iter().filter_map(|list| text(headers, list));
    let mut pairs = lists.flat_map(|list| list.split('/')).filter_map(|pair| pair.split_once(':'));
    pairs.find(|(own, _)| *own == name).map(|(_, value)| value)
}

fn mode_of(headers: &HeaderMap) -> Option<u32> {
    let octal = |name| u32::from_str_radix(text(headers, name)?, 8).ok().filter(is_valid);
    let link = headers.contains_key(format!("{USER}{TARGET}")).then_some(MODE_SYMLINK | 0o777);
    let plain = octal("file-permissions").or_else(|| parse_mode(text(headers, "mode")?));
    link.or(plain).or_else(|| parse_mode(listed(headers, "mode")?)).or_else(|| octal("goog-reserved-posix-mode"))
}

fn time_of(headers: &HeaderMap) -> Option<Timestamp> {
    let nanoseconds = || text(headers, "file-mtime")?.trim_end_matches("ns").parse().ok().map(Timestamp);
    nanoseconds()
        .or_else(|| parse_time(text(headers, "mtime")?))
        .or_else(|| parse_time(listed(headers, "mtime")?))
        .or_else(|| parse_time(text(headers, "goog-reserved-file-mtime")?))
        .or_else(|| written(headers))
}

/// `Last-Modified`.
fn written(headers: &HeaderMap) -> Option<Timestamp> {
    let date = httpdate::parse_http_date(headers.get(LAST_MODIFIED)?.to_str().ok()?).ok()?;
    let since = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp(i64::try_from(since.as_nanos()).ok()?))
}

/// When the bucket got an object, in milliseconds; 0: HEAD does not say.
pub(crate) fn written_ms(headers: &HeaderMap) -> u64 {
    written(headers).map_or(0, |at| u64::try_from(at.0 / 1_000_000).unwrap_or(0))
}

/// Whether an object has the metadata with which a file would be sent now, whoever wrote it.
pub(crate) fn is_told(sent: &Metadata, headers: &HeaderMap) -> bool {
    let is_compared =
        |name: &HeaderName| *name != WRITE_ID && (name.as_str().starts_with(USER) || is_plain(name.as_str()));
    let text = |value: &HeaderValue| words::decoded(value.as_bytes());
    let mut compared = sent.iter().filter(|(name, _)| is_compared(name));
    let has_all = compared.all(|(name, value)| headers.get(name).is_some_and(|there| text(there) == text(value)));
    let is_sent = |name: &HeaderName| sent.iter().any(|(own, _)| own == name);
    let mut more = headers.iter().filter(|(name, _)| is_compared(name) && !is_sent(name));
    has_all && more.all(|(name, value)| *name == CONTENT_TYPE && value == DEFAULT_TYPE)
}

pub(crate) fn kind_of(mode: u32) -> u32 {
    mode & MODE_KIND
}

/// A mode in the form of an entry.
pub(crate) fn here(mode: u32) -> u32 {
    match kind_of(mode) {
        MODE_REGULAR | MODE_DIRECTORY => mode & !MODE_KIND,
        _ => mode,
    }
}

impl ObjectAttributes {
    pub(crate) fn of(headers: &HeaderMap) -> ObjectAttributes {
        let number = |name: &str, own: &str, google: &str| {
            let first = text(headers, name).or_else(|| text(headers, own));
            first.or_else(|| listed(headers, own)).or_else(|| text(headers, google))?.parse().ok()
        };
        let target = headers.get(format!("{USER}{TARGET}")).and_then(|target| words::decoded(target.as_bytes()));
        ObjectAttributes {
            mode: mode_of(headers),
            uid: number("file-owner", "uid", "goog-reserved-posix-uid"),
            gid: number("file-group", "gid", "goog-reserved-posix-gid"),
            device: text(headers, "rdev").and_then(|device| device.parse().ok()),
            modified: time_of(headers),
            target: target.map(|target| decoded(target.as_bytes())),
        }
    }

    /// Mode of a file in the form of its entry, where a regular one has no kind.
    pub(crate) fn file_mode(&self) -> u32 {
        here(self.mode.unwrap_or(0o644))
    }

    pub(crate) fn rights_of_directory(&self) -> u32 {
        self.mode.map_or(0o755, |mode| mode & !MODE_KIND)
    }
}

/// Which write made an object, by its metadata; empty if that does not say.
pub(crate) fn write_id_of(there: &Described) -> &str {
    there.headers.get(WRITE_ID).and_then(|id| id.to_str().ok()).unwrap_or_default()
}

/// Whether this metadata, named without its prefix, is not an extended attribute.
pub(crate) fn is_own(name: &str) -> bool {
    OWN.contains(&name) || Some(name) == WRITE_ID.as_str().strip_prefix(USER)
}

/// The headers of an object that an entry keeps beside its attributes.
pub(crate) fn kept_headers(headers: &HeaderMap, has_body: bool) -> Headers {
    let is_kept = |name: &str| match name.strip_prefix(USER) {
        // That of a link without a body is its content here.
        Some(TARGET) => has_body,
        Some(own) => !is_own(own),
        None => is_plain(name),
    };
    let kept = headers.iter().filter(|(name, _)| is_kept(name.as_str()));
    kept.filter_map(|(name, value)| Some((name.as_str().to_owned(), words::decoded(value.as_bytes())?))).collect()
}

fn push(metadata: &mut Metadata, name: &str, value: &str) {
    // Stored headers were header values once.
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
        metadata.push((name, value));
    }
}

/// The headers of an owner and a time, named without their prefix; of a mode that says no kind, as a regular file's.
pub(crate) fn owner_headers(
    (mode, uid, gid): (u32, u32, u32),
    Timestamp(modified): Timestamp,
) -> [(&'static str, String); 4] {
    let kind = if kind_of(mode) == 0 { MODE_REGULAR } else { 0 };
    let (seconds, rest) = (modified.div_euclid(NANOSECONDS), modified.rem_euclid(NANOSECONDS));
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:09}") };
    [
        ("mode", format!("0{:o}", kind | mode)),
        ("uid", uid.to_string()),
        ("gid", gid.to_string()),
        ("mtime", format!("{seconds}{fraction}")),
    ]
}

fn push_owner(metadata: &mut Metadata, owner: (u32, u32, u32), modified: Timestamp) {
    for (name, value) in owner_headers(owner, modified) {
        push(metadata, &format!("{USER}{name}"), &value);
    }
}

/// The headers of a file's object; `xattrs`: those that are not headers of the entry.
pub(crate) fn of_file(file: &FileEntry, xattrs: &[Xattr], write_id: &str) -> Metadata {
    let mut metadata = Metadata::new();
    let mut packed = xattrs.to_vec();
    for (name, value) in &file.headers {
        match name.strip_prefix(USER) {
            Some(own) if is_own(own) || !is_text(value) => packed.push(packed::of_header(own, value)),
            Some(_) => push(&mut metadata, name, &words::encoded(value)),
            None if is_plain(name) => push(&mut metadata, name, value),
            None => {}
        }
    }
    push_owner(&mut metadata, (file.mode, file.uid, file.gid), file.modified);
    if file.device != 0 {
        push(&mut metadata, "x-amz-meta-rdev", &file.device.to_string());
    }
    if let (MODE_SYMLINK, Data::Inline(target)) = (file.kind(), &file.data)
        && !file.headers.contains_key(&format!("{USER}{TARGET}"))
    {
        let target = escaped(target);
        if target.len() <= TARGET_BYTES_MAX {
            push(&mut metadata, &format!("{USER}{TARGET}"), &target);
        }
    }
    finish(metadata, &packed, write_id)
}

/// The headers of a directory's marker.
pub(crate) fn of_directory(entry: &DirectoryEntry, modified: Timestamp, xattrs: &[Xattr], write_id: &str) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.push((CONTENT_TYPE, HeaderValue::from_static("application/x-directory")));
    push_owner(&mut metadata, (MODE_DIRECTORY | entry.mode, entry.uid, entry.gid), modified);
    let mut packed = Vec::new();
    for xattr in xattrs {
        match packed::as_header(xattr).filter(|(name, value)| !is_own(name) && is_text(value)) {
            Some((name, value)) => push(&mut metadata, &format!("{USER}{name}"), &words::encoded(value)),
            None => packed.push(xattr.clone()),
        }
    }
    finish(metadata, &packed, write_id)
}

/// The headers of an object whose content is that of another client and whose attributes are those of the file here. Of the times,
/// and of the headers without a prefix, those stay that are about the content. `None`: one of them is no regular file.
pub(crate) fn of_both(file: &FileEntry, xattrs: &[Xattr], there: &Described) -> Option<HeaderMap> {
    let theirs = ObjectAttributes::of(&there.headers);
    if file.kind() != 0 || theirs.file_mode() & MODE_KIND != 0 {
        return None;
    }
    let own = FileEntry { modified: theirs.modified.unwrap_or(file.modified), ..file.clone() };
    let own = of_file(&own, xattrs, write_id_of(there)).into_iter();
    let theirs = there.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
    let is_user = |name: &HeaderName| name.as_str().starts_with(USER);
    Some(own.filter(|(name, _)| is_user(name)).chain(theirs.filter(|(name, _)| !is_user(name))).collect())
}

fn finish(mut metadata: Metadata, packed: &[Xattr], write_id: &str) -> Metadata {
    if !packed.is_empty() {
        push(&mut metadata, &format!("{USER}{}", packed::PACKED), &packed::pack(packed));
    }
    push(&mut metadata, WRITE_ID.as_str(), write_id);
    metadata
}

/// What S3 counts of the metadata: names without their prefix, and values.
pub(crate) fn metadata_bytes(metadata: &Metadata) -> usize {
    let user = metadata.iter().filter_map(|(name, value)| Some(name.as_str().strip_prefix(USER)?.len() + value.len()));
    user.sum()
}

/// Whether a header can have this value, if it is encoded.
fn is_text(value: &str) -> bool {
    value.trim() == value && !value.chars().any(char::is_control)
}

/// Headers that a request may name without a prefix.
pub(crate) fn is_plain(name: &str) -> bool {
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
        let listed = headers(&[("x-amz-meta-mc-attrs", "atime:1#2/gid:8/gname:g/mode:33152/mtime:1500000000#5/uid:7")]);
        let read = ObjectAttributes::of(&listed);
        assert_eq!((read.mode, read.uid, read.gid), (Some(0o100_600), Some(7), Some(8)), "as mc writes them");
        assert_eq!(read.modified, Some(Timestamp(1_500_000_000_000_000_005)));
        let google = headers(&[
            ("x-amz-meta-goog-reserved-posix-mode", "640"),
            ("x-amz-meta-goog-reserved-posix-uid", "7"),
            ("x-amz-meta-goog-reserved-posix-gid", "8"),
            ("x-amz-meta-goog-reserved-file-mtime", "1500000000"),
        ]);
        let read = ObjectAttributes::of(&google);
        assert_eq!((read.mode, read.uid, read.gid), (Some(0o640), Some(7), Some(8)), "as gsutil writes them");
        assert_eq!(read.modified, Some(Timestamp(1_500_000_000_000_000_000)));
        assert_eq!(mode("40755"), Some(0o040_755), "a directory's, as rclone writes it");
        let link = headers(&[("x-amz-meta---symlink-target", "=?UTF-8?B?w7wlMjU=?="), ("x-amz-meta-mode", "33188")]);
        let read = ObjectAttributes::of(&link);
        assert_eq!((read.mode, read.target.as_deref()), (Some(0o120_777), Some("\u{fc}%".as_bytes())));
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
        let sent: HeaderMap = of_file(&file, &[], "w").into_iter().collect();
        let read = ObjectAttributes::of(&sent);
        assert_eq!((read.file_mode(), read.uid, read.gid), (0o640, Some(1000), Some(100)));
        assert_eq!(read.modified, Some(now));
        assert_eq!(kept_headers(&sent, true), file.headers);
        let entry = DirectoryEntry { mode: 0o700, ..DirectoryEntry::implicit(Ino(2)) };
        let sent: HeaderMap = of_directory(&entry, Timestamp(5), &[], "w").into_iter().collect();
        let read = ObjectAttributes::of(&sent);
        assert_eq!((read.rights_of_directory(), read.modified), (0o700, Some(Timestamp(5))));
    }
}
