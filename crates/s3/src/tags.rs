//! Tags of objects and buckets: validation, wire format and storage format.
//!
//! Why:        three operations and four headers carry tags, all with the same rules.
//! Layout:     stored as in the header `x-amz-tagging`: `key=value&key=value`, percent-encoded, sorted by key.
//! Invariants: T1 accepted tags are valid: keys are unique, and both limits of AWS hold.
//! Not here:   where tags are stored (volume), who may see them.

use bytes::BytesMut;

use crate::error::{Code, S3Error};
use crate::route::query::Query;
use crate::xml::read::{Malformed, walk};
use crate::xml::write::{Writer, percent_encode};

/// Maximum number of tags of an object.
pub(crate) const OBJECT_TAGS_MAX: usize = 10;
/// Maximum number of tags of a bucket.
pub(crate) const BUCKET_TAGS_MAX: usize = 50;
/// Maximum length of a tag's key, in characters.
pub(crate) const TAG_KEY_CHARS_MAX: usize = 128;
/// Maximum length of a tag's value, in characters.
pub(crate) const TAG_VALUE_CHARS_MAX: usize = 256;
/// Prefix of reserved keys.
const RESERVED: &str = "aws:";

/// The owner of the tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tagged {
    Object,
    Bucket,
}

/// Valid tags, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tags(Vec<(String, String)>);

impl Tags {
    /// From pairs of a client.
    pub(crate) fn new(mut pairs: Vec<(String, String)>, of: Tagged) -> Result<Tags, S3Error> {
        let max = match of {
            Tagged::Object => OBJECT_TAGS_MAX,
            Tagged::Bucket => BUCKET_TAGS_MAX,
        };
        if pairs.len() > max {
            let what = if of == Tagged::Object { "Object" } else { "Bucket" };
            return Err(S3Error::new(Code::InvalidTag, format!("{what} tags cannot be greater than {max}")));
        }
        for (key, value) in &pairs {
            check(key, value)?;
        }
        pairs.sort();
        for two in pairs.windows(2) {
            let (key, _) = &two[0];
            if *key == two[1].0 {
                return Err(S3Error::new(Code::InvalidTag, "Cannot provide multiple Tags with the same key")
                    .with("TagKey", key));
            }
        }
        Ok(Tags(pairs))
    }

    /// From the header `x-amz-tagging`.
    pub(crate) fn from_header(value: &str) -> Result<Tags, S3Error> {
        let malformed = || {
            S3Error::argument(
                "x-amz-tagging",
                value,
                "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without \
                 tag name duplicates.",
            )
        };
        let pairs = pairs_of(value).map_err(|_| malformed())?;
        let unique = pairs.iter().enumerate().all(|(index, (key, _))| pairs[..index].iter().all(|(own, _)| own != key));
        if unique { Tags::new(pairs, Tagged::Object) } else { Err(malformed()) }
    }

    /// From a `Tagging` document.
    pub(crate) fn from_xml(document: &[u8], of: Tagged) -> Result<Tags, S3Error> {
        let (mut pairs, mut key, mut value, mut has_set) = (Vec::new(), None, None, false);
        walk(document, &mut |path, text| {
            match path {
                "Tagging/TagSet/Tag/Key" if key.is_none() => key = Some(text.to_owned()),
                "Tagging/TagSet/Tag/Value" if value.is_none() => value = Some(text.to_owned()),
                "Tagging/TagSet/Tag" => match (key.take(), value.take()) {
                    (Some(key), Some(value)) => pairs.push((key, value)),
                    _ => return Err(Malformed::because("a tag without a key or a value")),
                },
                "Tagging/TagSet" => has_set = true,
                "Tagging" => {}
                _ => return Err(Malformed::because("an unknown element")),
            }
            Ok(())
        })?;
        if !has_set {
            return Err(Malformed::because("no TagSet").into());
        }
        Tags::new(pairs, of)
    }

    /// From storage; pairs that do not decode are omitted.
    pub(crate) fn from_stored(stored: &[u8]) -> Tags {
        let pairs = std::str::from_utf8(stored).ok().and_then(|text| pairs_of(text).ok());
        Tags(pairs.unwrap_or_default())
    }

    pub(crate) fn to_stored(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        for (index, (key, value)) in self.0.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(b"&");
            }
            percent_encode(&mut out, key);
            out.extend_from_slice(b"=");
            percent_encode(&mut out, value);
        }
        out.to_vec()
    }

    pub(crate) fn write(&self, out: &mut BytesMut) {
        let mut writer = Writer::new(out);
        writer.root("Tagging");
        writer.open("TagSet");
        for (key, value) in &self.0 {
            writer.open("Tag");
            writer.text("Key", key);
            writer.text("Value", value);
            writer.close("Tag");
        }
        writer.close("TagSet");
        writer.close("Tagging");
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn pairs_of(encoded: &str) -> Result<Vec<(String, String)>, S3Error> {
    let query = Query::parse(encoded)?;
    Ok(query.pairs().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

fn check(key: &str, value: &str) -> Result<(), S3Error> {
    let fits =
        |character: char| character.is_alphanumeric() || character.is_whitespace() || "_.:/=+-@".contains(character);
    if key.is_empty() || key.chars().count() > TAG_KEY_CHARS_MAX || !key.chars().all(fits) {
        return Err(S3Error::new(Code::InvalidTag, "The TagKey you have provided is invalid").with("TagKey", key));
    }
    if value.chars().count() > TAG_VALUE_CHARS_MAX || !value.chars().all(fits) {
        return Err(S3Error::new(Code::InvalidTag, "The TagValue you have provided is invalid").with("TagKey", key));
    }
    if key.starts_with(RESERVED) {
        let message = "System tags cannot be added/updated by requester";
        return Err(S3Error::new(Code::InvalidTag, message).with("TagKey", key));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T: std::fmt::Debug>(result: Result<T, S3Error>) -> Code {
        result.unwrap_err().code
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn all_forms_hold_the_same_tags() {
        let given = pairs(&[("b", "1 2"), ("a/ü", ""), ("x=y", "@+")]);
        let tags = Tags::new(given.clone(), Tagged::Object).unwrap();
        assert_eq!(Tags::from_stored(&tags.to_stored()), tags);
        let header = String::from_utf8(tags.to_stored()).unwrap();
        assert_eq!(Tags::from_header(&header).unwrap(), tags);
        let mut out = BytesMut::new();
        tags.write(&mut out);
        assert_eq!(Tags::from_xml(&out, Tagged::Object).unwrap(), tags);
        assert_eq!(Tags::from_header("foo=bar&bar").unwrap().0, pairs(&[("bar", ""), ("foo", "bar")]));
        assert_eq!(Tags::from_header("a=b+c").unwrap().0, pairs(&[("a", "b c")]));
    }

    #[test]
    fn rules_of_tags() {
        let one = |key: &str, value: &str| Tags::new(pairs(&[(key, value)]), Tagged::Object);
        assert!(one(&"ü".repeat(128), &"ü".repeat(256)).is_ok());
        for (key, value) in
            [("", "v"), (&"k".repeat(129), "v"), ("k", &"v".repeat(257)), ("k!", "v"), ("k", "{"), ("aws:k", "v")]
        {
            assert_eq!(code(one(key, value)), Code::InvalidTag, "{key} {value}");
        }
        assert_eq!(code(Tags::new(pairs(&[("a", "1"), ("a", "2")]), Tagged::Bucket)), Code::InvalidTag);
        let many: Vec<_> = (0..51).map(|number| (number.to_string(), String::new())).collect();
        assert!(Tags::new(many[..10].to_vec(), Tagged::Object).is_ok());
        assert_eq!(code(Tags::new(many[..11].to_vec(), Tagged::Object)), Code::InvalidTag);
        assert!(Tags::new(many[..50].to_vec(), Tagged::Bucket).is_ok());
        assert_eq!(code(Tags::new(many, Tagged::Bucket)), Code::InvalidTag);
        assert_eq!(code(Tags::from_header("a=1&a=2")), Code::InvalidArgument);
        assert_eq!(code(Tags::from_header("a=%ff")), Code::InvalidArgument);
    }

    #[test]
    fn documents_are_read_strictly() {
        let read = |text: &str| Tags::from_xml(text.as_bytes(), Tagged::Object);
        assert!(read("<Tagging><TagSet/></Tagging>").unwrap().is_empty());
        for text in [
            "<Tagging/>",
            "<TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet>",
            "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>",
            "<Tagging><TagSet><Tag><Value>a</Value></Tag></TagSet></Tagging>",
            "<Tagging><TagSet><Tag><Key>a</Key><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>",
            "<Tagging><TagSet><Nonsense/></TagSet></Tagging>",
        ] {
            assert_eq!(code(read(text)), Code::MalformedXML, "{text}");
        }
    }
}
