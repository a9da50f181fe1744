//! Pagination: `MaxItems` and `Marker`.
//!
//! Invariants: P1 a list is sorted by key and a marker is the last key of a page. So entities created or deleted
//!                between two pages neither repeat nor hide others.

use super::Work;
use crate::error::S3Error;
use crate::query_api;
use crate::xml::write::Writer;

/// Maximum and default number of items in a page.
const ITEMS_MAX: usize = 1000;
const ITEMS_DEFAULT: usize = 100;

pub(super) struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins.
    marker: Option<String>,
}

impl<T> Page<T> {
    /// Writes the list, each item in a `member`, and the marker.
    pub(super) fn write(&self, writer: &mut Writer<'_>, list: &str, item: impl Fn(&mut Writer<'_>, &T)) {
        writer.open(list);
        for one in &self.items {
            writer.open("member");
            item(writer, one);
            writer.close("member");
        }
        writer.close(list);
        writer.flag("IsTruncated", self.marker.is_some());
        writer.optional("Marker", self.marker.as_deref());
    }
}

impl Work<'_> {
    /// The requested page of items with their keys.
    pub(super) fn page<T>(&self, items: impl Iterator<Item = (String, T)>) -> Result<Page<T>, S3Error> {
        let wrong = || query_api::invalid("MaxItems lies between 1 and 1000");
        let most = match self.get("MaxItems") {
            None => ITEMS_DEFAULT,
            Some(text) => text.parse().ok().filter(|count| (1..=ITEMS_MAX).contains(count)).ok_or_else(wrong)?,
        };
        let after = self.get("Marker");
        let mut items: Vec<_> = items.filter(|(key, _)| after.is_none_or(|after| key.as_str() > after)).collect();
        items.sort_by(|(one, _), (other, _)| one.cmp(other));
        let is_whole = items.len() <= most;
        items.truncate(most);
        let marker = items.last().filter(|_| !is_whole).map(|(key, _)| key.clone());
        Ok(Page { items: items.into_iter().map(|(_, item)| item).collect(), marker })
    }
}
