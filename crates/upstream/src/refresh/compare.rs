//! What differs between a name here and in the bucket.
//!
//! Why:        a copy of an object onto itself, as `chmod` of another mount is, keeps its ETag: only its time tells.
//! Invariants: C1 what is dirty or just written does not differ: the bucket gets it. Neither does a directory in the place of a file
//!                that was just removed: MinIO lists an object as one for a moment while it goes.
//!             C2 attributes differ only if the object has neither those that were listed nor those with which the file would be
//!                sent.
//! Not here:   when somebody looks (refresh), what is entered (list).

use std::collections::BTreeSet;

use margay_client::upstream::Described;
use margay_rows::Ino;
use margay_rows::record::{Entry, FileEntry, UpstreamObject};

use crate::attributes::{is_told, of_file};
use crate::heads::{Found, is_same_time};
use crate::list::{Listing, imported, object_of};
use crate::pages::Listed;
use crate::tracked::object_row;
use crate::xattrs;

/// What differs under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Not here.
    New,
    /// This file is another one there.
    Replaced(Ino),
    Gone(Ino),
    /// This file's object has the same content, and another time than its row says: its attributes may differ.
    Touched(Ino, UpstreamObject),
    /// This directory has nothing there.
    Empty(Ino),
}

impl Difference {
    /// The file that goes.
    pub(super) fn file(&self) -> Option<Ino> {
        match self {
            Difference::New | Difference::Empty(_) => None,
            Difference::Replaced(ino) | Difference::Gone(ino) | Difference::Touched(ino, _) => Some(*ino),
        }
    }
}

impl Listing {
    /// What differs under one name of the directory with this path, if it is not dirty.
    pub(super) fn difference(
        &self,
        touched: &BTreeSet<String>,
        (path, name): (&str, &str),
        here: Option<&Entry>,
        there: Option<&Listed>,
    ) -> Result<Option<Difference>, String> {
        let object_key = format!("{path}{name}");
        let is_touched = match object_key.strip_suffix('/') {
            Some(file) => {
                let below = touched.range(object_key.clone()..).next();
                touched.contains(file) || below.is_some_and(|key| key.starts_with(&object_key))
            }
            None => touched.contains(&object_key),
        };
        if is_touched {
            return Ok(None);
        }
        let file = match here {
            None => return Ok(there.map(|_| Difference::New)),
            Some(Entry::File(file)) => file,
            Some(Entry::Directory(entry)) => return Ok(there.is_none().then_some(Difference::Empty(entry.ino))),
            Some(Entry::Link(_)) => return Ok(None),
        };
        let object = object_row(&*self.tracked.below, file.ino).map_err(|error| error.to_string())?;
        let Some(object) = object.filter(|object| object.key == object_key) else { return Ok(None) };
        let line = match there {
            Some(Listed::Object(line)) => line,
            // Something else is below it than an object.
            Some(Listed::Directory) => return Ok(None),
            None => return Ok(Some(Difference::Gone(file.ino))),
        };
        if !is_same_etag(&line.etag, &object.etag) || line.size != object.size {
            return Ok(Some(Difference::Replaced(file.ino)));
        }
        let is_seen = line.modified == 0 || object.modified != 0 && is_same_time(line.modified, object.modified);
        Ok((!is_seen).then_some(Difference::Touched(file.ino, object)))
    }

    /// Whether a file here has the attributes of its object, which was written again with the same content.
    pub(super) fn has_attributes(
        &self,
        file: &FileEntry,
        object: &UpstreamObject,
        name: &str,
        there: &Described,
    ) -> Result<bool, String> {
        let found = Found::object(&object.key, name, there.clone());
        let listed = object_of(&found, &imported(file.ino, &found, file.modified), there);
        if listed.attributes == object.attributes {
            return Ok(true);
        }
        let whole = xattrs::whole(&*self.tracked.below, None, &Entry::File(file.clone()));
        let (whole, xattrs) = whole.map_err(|error| error.to_string())?;
        Ok(whole.file().is_some_and(|file| is_told(&of_file(&file, &xattrs, ""), &there.headers)))
    }
}

/// Some stores quote ETags in headers alone.
fn is_same_etag(one: &str, other: &str) -> bool {
    one.trim_matches('"') == other.trim_matches('"')
}
