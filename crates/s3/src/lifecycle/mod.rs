//! A bucket's lifecycle rules: which objects, versions and uploads expire, and when.
//!
//! Why:        rules are parsed, written and evaluated here as plain values, so that responses and the background job
//!             cannot disagree.
//! Layout:     `read` checks a client's document, `write` formats it, `due` evaluates.
//! Invariants: L1 writing and reading again gives the same rules, with an id for every rule.
//!             L2 a rule that is disabled, or whose filter does not match, has no effect.
//! Not here:   expiring (margay-jobs), where the document is stored (volume).

mod due;
mod known;
mod read;
mod write;

use margay_env::Timestamp;
use margay_volume::{Document, Documents};

pub use self::due::{Days, Due, Subject};
pub(crate) use self::known::expiration;
pub use self::read::read;
use crate::route::query::Query;

/// Maximum number of rules of a bucket.
pub const RULES_MAX: usize = 1000;
/// Maximum length of a rule's id, in characters.
pub const ID_CHARS_MAX: usize = 255;
/// Maximum number of noncurrent versions that a rule may keep.
pub const NEWER_VERSIONS_MAX: u32 = 100;

/// The tags in an object's documents, in the form of [`Subject::tags`].
pub fn tags(documents: &Documents) -> Vec<(String, String)> {
    let stored = documents.get(&Document::Tags).and_then(|stored| std::str::from_utf8(stored).ok());
    let pairs = Query::parse(stored.unwrap_or_default()).unwrap_or_default();
    pairs.pairs().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The rules of one bucket, in the order of the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifecycle {
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub id: String,
    pub enabled: bool,
    pub filter: Filter,
    pub expiration: Option<Expiration>,
    pub noncurrent: Option<Noncurrent>,
    /// Days after which an unfinished multipart upload is aborted.
    pub abort_days: Option<u32>,
}

/// When the current version of an object expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiration {
    /// Days after its creation.
    Days(u32),
    /// From this midnight on, however old it is.
    Date(Timestamp),
    /// When true: only delete markers without any version below them.
    DeleteMarker(bool),
}

/// When a noncurrent version expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noncurrent {
    /// Days after it became noncurrent.
    pub days: u32,
    /// This many of the newest noncurrent versions are kept in any case.
    pub keep: Option<u32>,
}

/// The syntax of a filter in the document, which is kept for writing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `Prefix` directly in the rule: the form before filters existed.
    Prefix,
    /// `Filter` with at most one condition.
    One,
    /// `Filter` with `And`.
    And,
}

/// The objects that a rule applies to; every condition must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    form: Form,
    pub prefix: Option<String>,
    pub tags: Vec<(String, String)>,
    /// Exclusive, in bytes.
    pub larger_than: Option<u64>,
    /// Exclusive, in bytes.
    pub smaller_than: Option<u64>,
}

impl Filter {
    fn empty(form: Form) -> Filter {
        Filter { form, prefix: None, tags: Vec::new(), larger_than: None, smaller_than: None }
    }

    /// Tags that are not loaded yet count as matching.
    fn fits(&self, subject: &Subject<'_>) -> bool {
        self.fits_key(subject.key)
            && self.larger_than.is_none_or(|bytes| subject.size > bytes)
            && self.smaller_than.is_none_or(|bytes| subject.size < bytes)
            && subject.tags.is_none_or(|tags| self.tags.iter().all(|wanted| tags.contains(wanted)))
    }

    fn fits_key(&self, key: &str) -> bool {
        self.prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix))
    }

    /// Whether it has conditions besides a prefix.
    fn looks_inside(&self) -> bool {
        !self.tags.is_empty() || self.larger_than.is_some() || self.smaller_than.is_some()
    }
}
