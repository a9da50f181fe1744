//! A bucket's lifecycle: which objects, versions and uploads end, and when.
//!
//! Why:        the rules are read, written and decided here as plain values, so that the answer to a client and the
//!             work in the background cannot disagree.
//! Layout:     `read` checks a client's document, `write` gives it back, `due` decides.
//! Invariants: L1 what was read is written so that it reads the same again, with an id for every rule.
//!             L2 a rule that is disabled, or whose filter does not fit, decides nothing.
//! Not here:   carrying it out (the binary), where the document is kept (volume).

mod due;
mod known;
mod read;
mod write;

use margay_env::Timestamp;
use margay_volume::{Document, Documents};

pub use self::due::{Days, Due, Subject};
pub(crate) use self::known::KnownLifecycles;
pub use self::read::read;
use crate::route::query::Query;

/// Most rules of one bucket.
pub const RULES_MAX: usize = 1000;
/// Longest id of a rule, in characters.
pub const ID_CHARS_MAX: usize = 255;
/// Most noncurrent versions that a rule may keep.
pub const NEWER_VERSIONS_MAX: u32 = 100;

/// The tags among an object's documents, as [`Subject::tags`] takes them.
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

/// What ends the current version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiration {
    /// Days since it was made.
    Days(u32),
    /// From this midnight on, however old it is.
    Date(Timestamp),
    /// Only a delete marker without any version behind it, and only when true.
    DeleteMarker(bool),
}

/// What ends a version that another one replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noncurrent {
    /// Days since it was replaced.
    pub days: u32,
    /// So many of the newest replaced versions stay in any case.
    pub keep: Option<u32>,
}

/// How a filter stood in the document; it is given back the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `Prefix` directly in the rule: the form before filters.
    Prefix,
    /// `Filter` with at most one condition.
    One,
    /// `Filter` with `And`.
    And,
}

/// The objects that a rule is for; every condition must fit.
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

    /// Tags that are not known yet fit.
    fn fits(&self, subject: &Subject<'_>) -> bool {
        self.fits_key(subject.key)
            && self.larger_than.is_none_or(|bytes| subject.size > bytes)
            && self.smaller_than.is_none_or(|bytes| subject.size < bytes)
            && subject.tags.is_none_or(|tags| self.tags.iter().all(|wanted| tags.contains(wanted)))
    }

    fn fits_key(&self, key: &str) -> bool {
        self.prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix))
    }

    /// Whether it asks for more than a prefix.
    fn looks_inside(&self) -> bool {
        !self.tags.is_empty() || self.larger_than.is_some() || self.smaller_than.is_some()
    }
}
