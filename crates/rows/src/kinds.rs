//! Kinds of bucket settings and object documents, with their numbers.
//!
//! Why:        the row of a bucket or object lists its kinds as a set of bits.
//! Invariants: K1 a kind keeps its number for ever; new ones are added at the end, here and in docs/format/keys.md.
//! Not here:   storing them (bucket_settings, documents), their content (their users).

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::numbered::{Numbered, SetOf};

/// Maximum size of a setting's document, in bytes.
pub const SETTING_BYTES_MAX: usize = 1 << 20;

/// A setting of a bucket. It keeps its number for ever; new ones are added at the end, here and in docs/format/keys.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Setting {
    Policy,
    Cors,
    Lifecycle,
    Tagging,
    Encryption,
    Website,
    Logging,
    Notification,
    PublicAccessBlock,
    OwnershipControls,
    ObjectLock,
    Acl,
    Quota,
    RequestPayment,
}

impl Numbered for Setting {
    const ALL: &'static [Setting] = &[
        Setting::Policy,
        Setting::Cors,
        Setting::Lifecycle,
        Setting::Tagging,
        Setting::Encryption,
        Setting::Website,
        Setting::Logging,
        Setting::Notification,
        Setting::PublicAccessBlock,
        Setting::OwnershipControls,
        Setting::ObjectLock,
        Setting::Acl,
        Setting::Quota,
        Setting::RequestPayment,
    ];

    fn number(self) -> u8 {
        self as u8
    }
}

/// The settings of a bucket.
pub type SettingSet = SetOf<Setting>;
/// Settings with their documents.
pub type Settings = BTreeMap<Setting, Bytes>;

/// Maximum size of a document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 32 << 10;

/// A document of an object. A kind keeps its number for ever; new ones are added at the end, here and in
/// docs/format/keys.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Document {
    Tags,
    Acl,
    Retention,
    LegalHold,
    /// How the content is encrypted.
    Encryption,
    /// The id of the multipart upload that the object came from.
    Upload,
}

impl Numbered for Document {
    const ALL: &'static [Document] = &[
        Document::Tags,
        Document::Acl,
        Document::Retention,
        Document::LegalHold,
        Document::Encryption,
        Document::Upload,
    ];

    fn number(self) -> u8 {
        self as u8
    }
}

/// The documents of an object.
pub type DocumentSet = SetOf<Document>;
/// Documents with their bytes.
pub type Documents = BTreeMap<Document, Bytes>;
