//! XML documents of requests, as arbitrary bytes.
//!
//! Invariants: Z1 writing a stored document and parsing it again gives the same value.

use bytes::BytesMut;
use margay_iam::acl::GRANTS_MAX;
use margay_volume::{RETENTION_DAYS_MAX, RETENTION_YEARS_MAX, RetentionPeriod};

use super::NOW;
use crate::access::acl_document;
use crate::access::ownership::Ownership;
use crate::access::public_access_block::PublicAccessBlock;
use crate::bucket_logging::BucketLogging;
use crate::cors::Rules;
use crate::error::S3Error;
use crate::lifecycle::{self, Days, Subject};
use crate::notification;
use crate::op::encryption::configuration::Configuration;
use crate::op::object_lock::{configuration, legal_hold, retention};
use crate::op::{
    bucket_accelerate, bucket_request_payment, complete_multipart_upload, create_bucket, delete_objects,
    put_bucket_versioning,
};
use crate::tags::{Tagged, Tags};
use crate::website::Website;
use crate::xml::read::walk;
use crate::xml::write::{Writer, escape};

/// An XML document: the first byte selects its request.
pub fn xml_document(bytes: &[u8]) {
    let Some((kind, document)) = bytes.split_first() else { return };
    match kind {
        b'0' => {
            if let Ok(parts) = complete_multipart_upload::parse(document) {
                assert!(!parts.is_empty());
            }
        }
        b'1' => {
            if let Ok(deletions) = delete_objects::parse(document) {
                same_keys(&deletions);
            }
        }
        b'2' => drop(create_bucket::check(document)),
        b'v' => drop(put_bucket_versioning::parse(document)),
        b't' => {
            for of in [Tagged::Object, Tagged::Bucket] {
                same_again(document, |document| Tags::from_xml(document, of), Tags::write);
                if let Ok(tags) = Tags::from_xml(document, of) {
                    assert_eq!(Tags::from_stored(&tags.to_stored()), tags);
                }
            }
        }
        b'c' => same_again(document, Rules::from_xml, Rules::write),
        b'e' => same_again(document, Configuration::parse, |read, out| read.write(out)),
        b'w' => same_again(document, Website::from_xml, Website::write),
        b'g' => same_again(document, BucketLogging::read, |logging, out| match logging {
            Some(logging) => out.extend_from_slice(&logging.write()),
            None => out.extend_from_slice(b"<BucketLoggingStatus/>"),
        }),
        b'l' => lifecycle_rules(document),
        b'n' => same_again(document, notification::read, |rules, out| out.extend_from_slice(&rules.write())),
        b'p' => drop(bucket_request_payment::requester_pays(document)),
        b'a' => drop(bucket_accelerate::enables(document)),
        b'A' => {
            if let Ok(list) = acl_document::parse(document) {
                assert!(list.grants.len() <= GRANTS_MAX);
            }
        }
        b'o' => same_again(document, Ownership::parse, |own, out| own.write(&mut Writer::new(out))),
        b'b' => {
            same_again(document, PublicAccessBlock::parse, |block, out| block.write(&mut Writer::new(out)));
            if let Ok(block) = PublicAccessBlock::parse(document) {
                assert_eq!(PublicAccessBlock::decode(&block.encode()), block);
            }
        }
        b'd' => {
            let Ok(Some(default)) = configuration::parse(document) else { return };
            assert!(match default.period {
                RetentionPeriod::Days(days) => (1..=RETENTION_DAYS_MAX).contains(&days),
                RetentionPeriod::Years(years) => (1..=RETENTION_YEARS_MAX).contains(&years),
            });
        }
        b'h' => drop(legal_hold::parse(document)),
        b'r' => drop(retention::parse(document)),
        _ => drop(walk(document, &mut |_, _| Ok(()))),
    }
}

/// Writing a value and parsing it again gives the same value: documents are stored that way.
fn same_again<T: PartialEq + std::fmt::Debug>(
    document: &[u8],
    read: impl Fn(&[u8]) -> Result<T, S3Error>,
    write: impl Fn(&T, &mut BytesMut),
) {
    let Ok(value) = read(document) else { return };
    let mut again = BytesMut::new();
    write(&value, &mut again);
    assert_eq!(read(&again).expect("what was read is written well-formed"), value);
}

/// The keys of a deletion, written and parsed again.
fn same_keys(deletions: &delete_objects::Deletions) {
    let mut again = BytesMut::from(&b"<Delete>"[..]);
    for entry in &deletions.entries {
        again.extend_from_slice(b"<Object><Key>");
        escape(&mut again, &entry.key);
        again.extend_from_slice(b"</Key></Object>");
    }
    again.extend_from_slice(b"</Delete>");
    let same = delete_objects::parse(&again).expect("what was read is written well-formed");
    let keys = |of: &delete_objects::Deletions| of.entries.iter().map(|entry| entry.key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&same), keys(deletions));
}

/// Rules survive storage, and evaluate for every object.
fn lifecycle_rules(document: &[u8]) {
    same_again(document, lifecycle::read, |rules, out| out.extend_from_slice(&rules.write()));
    let Ok(rules) = lifecycle::read(document) else { return };
    let subject = Subject { key: "logs/a", size: 5, modified: NOW, tags: None };
    assert!(rules.current(&subject, Days::REAL).is_none_or(|due| due.rule.enabled));
    let _ = rules.noncurrent(&subject, NOW, 3, Days::REAL);
    let _ = (rules.lone_marker("a", NOW, Days::REAL), rules.upload("a", NOW, Days::REAL));
}
