//! Formats an answered request as a line of AWS's server access log.
//!
//! Why:        tools that parse S3's access logs can parse these too.
//! Layout:     26 fields separated by spaces; `-` for none. Text from clients is quoted, and percent-encoded where it
//!             could end the field or the line.
//! Not here:   delivery of lines (margay-jobs).

use std::fmt::Write as _;

use margay_env::Timestamp;

use crate::access_subject::AccessSubject;
use crate::observer::RequestDone;
use crate::time::log_time;

/// Maximum size of a field with client text, in bytes; the rest is cut off.
const FIELD_BYTES_MAX: usize = 2048;

/// The line, including its line feed.
pub fn access_line(subject: &AccessSubject, done: &RequestDone<'_>, at: Timestamp, owner: &str) -> String {
    let mut line = String::with_capacity(512);
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { plain(text) };
    let number = |count: u64| if count == 0 { "-".to_owned() } else { count.to_string() };
    let quoted = |text: &str| if text.is_empty() { "\"-\"".to_owned() } else { format!("\"{}\"", quotable(text)) };
    let request = format!("{} {} HTTP/1.1", subject.method, subject.target);
    let fields = [
        or_dash(owner),
        or_dash(&subject.bucket),
        format!("[{}]", log_time(at)),
        done.peer.ip().to_string(),
        or_dash(&subject.requester),
        or_dash(done.request_id),
        operation(done.operation, &subject.method, subject.key.is_empty()),
        // AWS encodes the key twice, for the URL and for the line; here once.
        or_dash(&subject.key),
        quoted(&request),
        done.status.as_u16().to_string(),
        or_dash(done.code.unwrap_or_default()),
        number(done.bytes_out),
        number(done.object_bytes),
        done.total.as_millis().to_string(),
        done.first_byte.as_millis().to_string(),
        quoted(&subject.referer),
        quoted(&subject.user_agent),
        or_dash(&subject.version),
        "-".to_owned(),
        or_dash(subject.signature),
        "-".to_owned(),
        or_dash(subject.authentication),
        or_dash(&subject.host),
        (if subject.secure { "TLS" } else { "-" }).to_owned(),
        "-".to_owned(),
        "-".to_owned(),
    ];
    line.push_str(&fields.join(" "));
    line.push('\n');
    line
}

/// The last part of a log object's key: its time, and a random number that separates objects of the same second.
pub fn log_object_name(at: Timestamp, random: u64) -> String {
    let time = crate::time::iso(at);
    let time: String = time.chars().take(19).map(|one| if matches!(one, 'T' | ':') { '-' } else { one }).collect();
    format!("{time}-{random:016X}")
}

/// An unquoted field: percent-encodes everything that would end it.
fn plain(text: &str) -> String {
    encoded(text, |character| character <= ' ' || character == '"' || character == '\u{7f}')
}

/// A quoted field: spaces are kept, quotes and line feeds are encoded.
fn quotable(text: &str) -> String {
    encoded(text, |character| character < ' ' || character == '"' || character == '\u{7f}')
}

fn encoded(text: &str, unsafe_here: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if out.len() >= FIELD_BYTES_MAX {
            break;
        }
        if unsafe_here(character) {
            write!(out, "%{:02X}", u32::from(character)).expect("a String takes every write");
        } else {
            out.push(character);
        }
    }
    out
}

/// The operation's name in the log: `REST.`, the method, and the resource type.
fn operation(name: &str, method: &str, of_bucket: bool) -> String {
    let (method, about) = match name {
        "CopyObject" => ("COPY", "OBJECT".to_owned()),
        "UploadPart" => ("PUT", "PART".to_owned()),
        "UploadPartCopy" => ("COPY", "PART".to_owned()),
        "CreateMultipartUpload" => ("POST", "UPLOADS".to_owned()),
        "CompleteMultipartUpload" => ("POST", "UPLOAD".to_owned()),
        "AbortMultipartUpload" => ("DELETE", "UPLOAD".to_owned()),
        "ListParts" => ("GET", "UPLOAD".to_owned()),
        "ListMultipartUploads" => ("GET", "UPLOADS".to_owned()),
        "ListBuckets" => ("GET", "SERVICE".to_owned()),
        "ListObjectVersions" => ("GET", "BUCKETVERSIONS".to_owned()),
        "DeleteObjects" => ("POST", "MULTI_OBJECT_DELETE".to_owned()),
        "Website" => return format!("WEBSITE.{method}.OBJECT"),
        "GetObject" | "HeadObject" | "PutObject" | "DeleteObject" => (method, "OBJECT".to_owned()),
        "CreateBucket" | "DeleteBucket" | "HeadBucket" | "ListObjects" | "ListObjectsV2" => {
            (method, "BUCKET".to_owned())
        }
        other => (method, about_setting(other, of_bucket)),
    };
    format!("REST.{method}.{about}")
}

/// `GetBucketLifecycleConfiguration` gives `LIFECYCLE`, `PutObjectTagging` gives `OBJECT_TAGGING`.
fn about_setting(name: &str, of_bucket: bool) -> String {
    let rest = ["Get", "Put", "Delete"].iter().find_map(|verb| name.strip_prefix(verb)).unwrap_or(name);
    match (rest.strip_prefix("Bucket"), rest.strip_prefix("Object")) {
        (Some(what), _) if !what.is_empty() => what.strip_suffix("Configuration").unwrap_or(what).to_uppercase(),
        (_, Some(what)) if !what.is_empty() => format!("OBJECT_{}", what.to_uppercase()),
        _ if of_bucket => "BUCKET".to_owned(),
        _ => "OBJECT".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Request, StatusCode};

    use super::*;
    use crate::route::target::Target;

    fn done(operation: &'static str) -> RequestDone<'static> {
        RequestDone {
            operation,
            status: StatusCode::OK,
            code: None,
            request_id: "0123456789ABCDEF",
            peer: "192.0.2.3:5000".parse().unwrap(),
            bytes_in: 0,
            bytes_out: 2662,
            object_bytes: 3462,
            first_byte: Duration::from_millis(10),
            total: Duration::from_millis(70),
            complete: true,
            subject: None,
            span: None,
        }
    }

    #[test]
    fn a_line_has_its_fields_in_order() {
        let request = Request::get("/photos/a%20b?versionId=v1&x=%22")
            .header("user-agent", "curl \"7\"\tx")
            .header("authorization", "AWS4-HMAC-SHA256 Credential=me/20260101/x/s3/aws4_request, Signature=1")
            .body(())
            .unwrap();
        let (parts, ()) = request.into_parts();
        let target = Target::parse("s3.test", parts.uri.path(), &[]).unwrap();
        let subject = AccessSubject::of(&parts, "s3.test", Some(&target), false);
        let line = access_line(&subject, &done("GetObject"), Timestamp(784_111_777_000_000_000), "owner");
        assert_eq!(
            line,
            "owner photos [06/Nov/1994:08:49:37 +0000] 192.0.2.3 me 0123456789ABCDEF REST.GET.OBJECT a%20b \
             \"GET /photos/a%20b?versionId=v1&x=%22 HTTP/1.1\" 200 - 2662 3462 70 10 \"-\" \"curl %227%22%09x\" v1 - \
             SigV4 - AuthHeader s3.test - - -\n"
        );
        assert_eq!(line.trim_end().split('"').count(), 7);
    }

    #[test]
    fn log_objects_sort_by_time() {
        assert_eq!(log_object_name(Timestamp(784_111_777_000_000_000), 10), "1994-11-06-08-49-37-000000000000000A");
    }

    #[test]
    fn operations_are_named_as_in_the_log() {
        for (name, method, of_bucket, expected) in [
            ("PutBucketLifecycleConfiguration", "PUT", true, "REST.PUT.LIFECYCLE"),
            ("GetBucketAcl", "GET", true, "REST.GET.ACL"),
            ("PutObjectTagging", "PUT", false, "REST.PUT.OBJECT_TAGGING"),
            ("ListObjectsV2", "GET", true, "REST.GET.BUCKET"),
            ("CopyObject", "PUT", false, "REST.COPY.OBJECT"),
            ("Unknown", "PATCH", true, "REST.PATCH.BUCKET"),
            ("HeadObject", "HEAD", false, "REST.HEAD.OBJECT"),
        ] {
            assert_eq!(operation(name, method, of_bucket), expected);
        }
    }

    #[test]
    fn nothing_a_client_writes_ends_a_field() {
        let subject =
            AccessSubject { key: "a b\n\"c".to_owned(), user_agent: "x".repeat(9000), ..AccessSubject::default() };
        let line = access_line(&subject, &done("GetObject"), Timestamp(0), "o");
        assert!(line.contains(" a%20b%0A%22c ") && line.len() < 4000);
        assert_eq!(line.matches('\n').count(), 1);
    }
}
