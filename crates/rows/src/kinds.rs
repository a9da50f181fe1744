//! What can be set on a bucket, and what can be kept with an object: the kinds and their numbers.
//!
//! Why:        a row that is read anyway tells by a set of bits which of them there are.
//! Invariants: a kind keeps its number for ever; new ones are added at the end, here and in docs/format/keys.md.
//! Not here:   keeping them (bucket_settings, documents), what is in them (their users).

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::numbered::{Numbered, SetOf};

/// Longest document of a setting, in bytes.
pub const SETTING_BYTES_MAX: usize = 1 << 20;

/// What can be set on a bucket. A setting keeps its number for ever; new ones are added at the end, here and in
/// docs/format/keys.md.
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

/// Which settings a bucket has.
pub type SettingSet = SetOf<Setting>;
/// Settings with their documents.
pub type Settings = BTreeMap<Setting, Bytes>;

/// Longest document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 32 << 10;

/// What can be kept with an object. A kind keeps its number for ever; new ones are added at the end, here and in
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

/// Which documents an object has.
pub type DocumentSet = SetOf<Document>;
/// Documents with their bytes.
pub type Documents = BTreeMap<Document, Bytes>;
