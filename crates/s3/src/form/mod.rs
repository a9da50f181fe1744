//! A browser's form (`POST` of `multipart/form-data` to a bucket): its fields, its file, its policy.
//!
//! Why:        visitors of a page can upload without a key: the owner of a key signs a policy that limits the upload,
//!             and the browser sends it with the form.
//! Invariants: F1 fields precede the file and are limited; the file streams, and only a possible delimiter is held
//!                back.
//!             F2 the file's body ends without an error only if the form is complete and the file has the size in its
//!                policy.
//! Not here:   the signature (`auth`), storing the file (`op`).

mod disposition;
mod error;
mod file;
mod policy;
mod reader;

pub(crate) use self::error::FormError;
pub(crate) use self::file::FileBody;
pub(crate) use self::policy::PolicyDocument;
pub(crate) use self::reader::{boundary, read};

/// Maximum size of the form before the file's content, and after it, in bytes.
pub(crate) const FORM_FIELDS_BYTES_MAX: usize = 20 << 10;
/// Maximum number of fields before the file.
pub(crate) const FORM_FIELDS_MAX: usize = 100;

/// Placeholder for the file's name in a field.
const FILENAME: &str = "${filename}";
/// Fields that the policy need not name, besides those with the prefix `x-ignore-`.
const OUTSIDE_POLICY: [&str; 4] = ["awsaccesskeyid", "policy", "signature", "x-amz-signature"];
/// Fields that control the upload and do not describe the object.
const NOT_HEADERS: [&str; 10] = [
    "bucket",
    "key",
    "redirect",
    "success_action_redirect",
    "success_action_status",
    // An XML document: see `door`.
    "tagging",
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-security-token",
];
/// Fields that are headers of PutObject, besides those with the prefix `x-amz-`.
const HEADERS: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
];

/// The fields before the file: lower-case names, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    fields: Vec<(String, String)>,
    /// The last component of the path that the browser sent.
    filename: String,
}

impl Form {
    /// A field by its lower-case name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn insert(&mut self, name: &str, value: String) -> Result<(), FormError> {
        let name = name.to_lowercase();
        if self.fields.len() == FORM_FIELDS_MAX {
            return Err(FormError::TooManyFields);
        }
        if self.get(&name).is_some() {
            return Err(FormError::FieldTwice(name));
        }
        self.fields.push((name, value));
        Ok(())
    }

    /// Replaces the placeholder for the file's name; the policy is checked against the result.
    fn end(mut self, filename: &str) -> Form {
        // Some browsers send the whole path, with the separators of their system.
        self.filename = filename.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        for (name, value) in &mut self.fields {
            if !OUTSIDE_POLICY.contains(&name.as_str()) && value.contains(FILENAME) {
                *value = value.replace(FILENAME, &self.filename);
            }
        }
        self
    }

    /// Fields that the policy must name.
    fn covered(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        fields.filter(|(name, _)| !OUTSIDE_POLICY.contains(name) && !name.starts_with("x-ignore-"))
    }

    /// The headers of an equivalent PutObject request.
    pub(crate) fn headers(&self) -> Result<http::HeaderMap, FormError> {
        let mut headers = http::HeaderMap::new();
        for (name, value) in self.covered().filter(|(name, _)| !NOT_HEADERS.contains(name)) {
            let header = match name {
                "acl" => "x-amz-acl",
                name if name.starts_with("x-amz-") || HEADERS.contains(&name) => name,
                // For example, buttons.
                _ => continue,
            };
            let refused = || FormError::BadHeader(name.to_owned());
            let header = http::HeaderName::from_bytes(header.as_bytes()).map_err(|_| refused())?;
            let value = http::HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| refused())?;
            headers.insert(header, value);
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests;
