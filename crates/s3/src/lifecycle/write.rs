//! Writes the rules as a document, for storage and for clients.

use bytes::BytesMut;

use super::{Expiration, Filter, Form, Lifecycle, Rule};
use crate::time::iso;
use crate::xml::write::Writer;

impl Lifecycle {
    /// XML that parses to the same rules.
    pub fn write(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(256 * (1 + self.rules.len()));
        let mut writer = Writer::new(&mut out);
        writer.root("LifecycleConfiguration");
        self.rules.iter().for_each(|rule| write_rule(&mut writer, rule));
        writer.close("LifecycleConfiguration");
        out
    }
}

fn write_rule(writer: &mut Writer<'_>, rule: &Rule) {
    writer.open("Rule");
    writer.text("ID", &rule.id);
    write_filter(writer, &rule.filter);
    writer.text("Status", if rule.enabled { "Enabled" } else { "Disabled" });
    if let Some(expiration) = rule.expiration {
        writer.open("Expiration");
        match expiration {
            Expiration::Days(days) => writer.number("Days", days.into()),
            Expiration::Date(at) => writer.text("Date", &iso(at)),
            Expiration::DeleteMarker(flag) => writer.flag("ExpiredObjectDeleteMarker", flag),
        }
        writer.close("Expiration");
    }
    if let Some(noncurrent) = rule.noncurrent {
        writer.open("NoncurrentVersionExpiration");
        writer.number("NoncurrentDays", noncurrent.days.into());
        if let Some(keep) = noncurrent.keep {
            writer.number("NewerNoncurrentVersions", keep.into());
        }
        writer.close("NoncurrentVersionExpiration");
    }
    if let Some(days) = rule.abort_days {
        writer.open("AbortIncompleteMultipartUpload");
        writer.number("DaysAfterInitiation", days.into());
        writer.close("AbortIncompleteMultipartUpload");
    }
    writer.close("Rule");
}

fn write_filter(writer: &mut Writer<'_>, filter: &Filter) {
    let wrappers: &[&str] = match filter.form {
        Form::Prefix => &[],
        Form::One => &["Filter"],
        Form::And => &["Filter", "And"],
    };
    wrappers.iter().for_each(|name| writer.open(name));
    writer.optional("Prefix", filter.prefix.as_deref());
    for (key, value) in &filter.tags {
        writer.open("Tag");
        writer.text("Key", key);
        writer.text("Value", value);
        writer.close("Tag");
    }
    if let Some(bytes) = filter.larger_than {
        writer.number("ObjectSizeGreaterThan", bytes);
    }
    if let Some(bytes) = filter.smaller_than {
        writer.number("ObjectSizeLessThan", bytes);
    }
    wrappers.iter().rev().for_each(|name| writer.close(name));
}
