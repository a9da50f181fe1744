//! Complete, split and invalid forms; policies and what they allow.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use base64::Engine as _;
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use margay_env::Timestamp;

use super::*;
use crate::body::WireError;

struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = WireError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        Poll::Ready(self.get_mut().0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("every piece is ready"),
    }
}

/// Parses a form that arrives in pieces of this size.
fn read_in(wire: &[u8], piece_bytes: usize, size: (u64, u64)) -> Result<(Form, Vec<u8>), FormError> {
    let pieces = Pieces(wire.chunks(piece_bytes.max(1)).map(Bytes::copy_from_slice).collect());
    now_or_never(async {
        let (form, file) = read(Box::new(pieces), "bound").await?;
        let mut file = file.with_size(size.0, size.1);
        let mut content = Vec::new();
        while let Some(frame) = file.frame().await {
            let frame = frame.map_err(|error| *error.downcast::<FormError>().unwrap())?;
            content.extend_from_slice(&frame.into_data().unwrap());
        }
        Ok((form, content))
    })
}

fn read_any(wire: &[u8]) -> Result<(Form, Vec<u8>), FormError> {
    read_in(wire, wire.len(), (0, u64::MAX))
}

fn part(head: &str, content: &[u8]) -> Vec<u8> {
    [b"--bound\r\nContent-Disposition: form-data; ", head.as_bytes(), b"\r\n\r\n", content, b"\r\n"].concat()
}

fn whole(content: &[u8]) -> Vec<u8> {
    let key = part("name=\"Key\"", b"up/${filename}");
    let file = part("name=\"file\"; filename=\"C:\\dir\\cat.jpg\"", content);
    [&key[..], &file, b"--bound--\r\n"].concat()
}

#[test]
fn how_a_form_is_cut_does_not_matter() {
    let contents: [&[u8]; 6] = [b"", b"x", b"\r\n", b"\r\n--boun", b"a\r\n--bounx\r\n--b\r\r\n-", &[b'\r'; 300]];
    for content in contents {
        let wire = whole(content);
        for piece_bytes in (1..40).chain([wire.len()]) {
            let (form, file) = read_in(&wire, piece_bytes, (0, u64::MAX)).unwrap();
            assert_eq!((form.get("key"), &file[..]), (Some("up/cat.jpg"), content), "pieces of {piece_bytes}");
        }
    }
}

#[test]
fn what_follows_the_file_is_ignored_to_the_end() {
    let file = part("name=file", b"content");
    let submit = part("name=submit", b"Upload");
    for after in [&b""[..], b"\r\n", b"epilogue"] {
        let wire = [&b"\r\n"[..], &file, &submit, b"--bound--", after].concat();
        assert_eq!(read_any(&wire).unwrap().1, b"content");
    }
    let wire = [&file[..], &vec![b'x'; FORM_FIELDS_BYTES_MAX + 1]].concat();
    assert!(matches!(read_any(&wire), Err(FormError::Incomplete)));
    let wire = [&file[..], b"--bound\r\n", &vec![b'x'; FORM_FIELDS_BYTES_MAX + 1], b"\r\n--bound--"].concat();
    assert!(matches!(read_any(&wire), Err(FormError::Malformed(_))));
}

#[test]
fn broken_forms() {
    let wire = whole(b"content");
    for len in 0..wire.len() - 4 {
        let outcome = read_any(&wire[..len]);
        assert!(matches!(outcome, Err(FormError::Incomplete)), "{len}: {outcome:?}");
    }
    assert!(matches!(read_any(b"--bound--\r\n"), Err(FormError::NoFile)));
    assert!(matches!(read_any(&[&part("name=key", b"k")[..], b"--bound--"].concat()), Err(FormError::NoFile)));
    assert!(matches!(read_any(b"preamble\r\n--bound\r\n"), Err(FormError::Malformed(_))));
    assert!(matches!(read_any(b"--boundary\r\n\r\n"), Err(FormError::Malformed(_))));
    let closed = |parts: Vec<u8>| read_any(&[&parts[..], b"--bound--"].concat());
    assert!(matches!(closed(part("name=key", b"\xff")), Err(FormError::Malformed(_))));
    let twice = [part("name=key", b"a"), part("name=KEY", b"b")].concat();
    assert!(matches!(closed(twice), Err(FormError::FieldTwice(name)) if name == "key"));
    let long = part("name=key", &vec![b'k'; FORM_FIELDS_BYTES_MAX]);
    assert!(matches!(read_any(&long), Err(FormError::FieldsTooLarge)));
    let many: Vec<u8> = (0..=FORM_FIELDS_MAX).flat_map(|number| part(&format!("name=f{number}"), b"")).collect();
    assert!(matches!(closed(many), Err(FormError::TooManyFields)));
}

#[test]
fn files_have_the_size_that_is_wanted() {
    let wire = whole(b"content");
    assert!(read_in(&wire, 5, (7, 7)).is_ok());
    assert!(matches!(read_in(&wire, 5, (8, 9)), Err(FormError::FileTooSmall { size: 7, min: 8 })));
    assert!(matches!(read_in(&wire, 5, (0, 6)), Err(FormError::FileTooLarge { max: 6 })));
}

#[test]
fn content_types() {
    let of = |text: &'static str| boundary(Some(&http::HeaderValue::from_static(text))).ok().map(str::to_owned);
    assert_eq!(of("multipart/form-data; boundary=a-b"), Some("a-b".to_owned()));
    assert_eq!(of("Multipart/Form-Data;charset=utf-8; Boundary=\"a b\""), Some("a b".to_owned()));
    for text in
        ["multipart/form-data", "multipart/form-data; boundary=", "application/x-www-form-urlencoded; boundary=a", ""]
    {
        assert_eq!(of(text), None, "{text}");
    }
    assert!(boundary(None).is_err());
}

fn form(fields: &[(&str, &str)]) -> Form {
    let mut form = Form::default();
    for (name, value) in fields {
        form.insert(name, (*value).to_owned()).unwrap();
    }
    form.end("cat.jpg")
}

fn policy(conditions: &str) -> PolicyDocument {
    let text = format!(
        "{{\"expiration\": \"2030-01-01T00:00:00.000Z\", \"conditions\": [{{\"bucket\": \"b\"}}, {conditions}]}}"
    );
    PolicyDocument::parse(text.as_bytes()).unwrap()
}

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

#[test]
fn conditions_of_every_kind() {
    let holds = |conditions: &str, fields: &[(&str, &str)]| policy(conditions).check(&form(fields), "b", NOW).is_ok();
    assert!(holds("{\"key\": \"a\"}", &[("key", "a")]));
    assert!(!holds("{\"key\": \"a\"}", &[("key", "A")]));
    assert!(holds("[\"eq\", \"$Key\", \"a\"]", &[("key", "a")]));
    assert!(holds("[\"StARTs-WITH\", \"$key\", \"user/\"]", &[("KEY", "user/${filename}")]));
    assert!(!holds("[\"starts-with\", \"$key\", \"user/\"]", &[("key", "users")]));
    assert!(holds("[\"starts-with\", \"$key\", \"\"]", &[("key", "anything")]));
    assert!(holds("[\"eq\", \"$key\", \"x/cat.jpg\"]", &[("key", "x/${filename}")]));
    // A required field is missing.
    assert!(!holds("[\"eq\", \"$acl\", \"private\"]", &[]));
    // A field has no condition.
    assert!(!holds("{\"key\": \"a\"}", &[("key", "a"), ("acl", "public-read")]));
    assert!(holds(
        "{\"key\": \"a\"}",
        &[("key", "a"), ("x-ignore-me", "x"), ("policy", "p"), ("x-amz-signature", "s")]
    ));
    // Every type in a list must match.
    let images = "[\"starts-with\", \"$Content-Type\", \"image/\"]";
    assert!(holds(images, &[("Content-Type", "image/png, image/gif")]));
    assert!(!holds(images, &[("Content-Type", "image/png,text/html")]));
    assert_eq!(policy("[\"content-length-range\", 1, \"10\"], [\"content-length-range\", 0, 5]").size(), (1, 5));
    assert!(policy("{\"key\": \"a\"}").check(&form(&[("key", "a")]), "other", NOW).is_err());
    assert!(
        policy("{\"key\": \"a\"}").check(&form(&[("key", "a")]), "b", Timestamp(1_893_456_000_000_000_000)).is_err()
    );
    let error = policy("{\"key\": \"a\"}").check(&form(&[("key", "b")]), "b", NOW).unwrap_err();
    assert_eq!(error.to_string(), "Invalid according to Policy: Policy Condition failed: [\"eq\", \"$key\", \"a\"]");
}

#[test]
fn a_policy_must_name_the_bucket() {
    let text = "{\"expiration\": \"2030-01-01T00:00:00Z\", \"conditions\": [{\"key\": \"a\"}]}";
    let policy = PolicyDocument::parse(text.as_bytes()).unwrap();
    let error = policy.check(&form(&[("key", "a")]), "b", NOW).unwrap_err();
    assert_eq!(error.to_string(), "Invalid according to Policy: Extra input fields: bucket");
}

#[test]
fn broken_policies() {
    let with = |conditions: &str| format!("{{\"expiration\": \"2030-01-01T00:00:00Z\", \"conditions\": {conditions}}}");
    let mut texts = vec![
        String::new(),
        "[]".to_owned(),
        "{\"conditions\": []}".to_owned(),
        "{\"expiration\": \"2030-01-01T00:00:00Z\"}".to_owned(),
        "{\"EXPIRATION\": \"2030-01-01T00:00:00Z\", \"conditions\": []}".to_owned(),
        "{\"expiration\": \"2030-01-01T00:00:00Z\", \"CONDITIONS\": []}".to_owned(),
    ];
    for date in [
        "2030-01-01",
        "2030-01-01 00:00:00+00:00",
        "2030-01-01T00:00:00",
        "2030-13-01T00:00:00Z",
        "1893456000",
        "9999-99-99T00:00:00Z",
    ] {
        texts.push(format!("{{\"expiration\": \"{date}\", \"conditions\": []}}"));
    }
    for conditions in [
        "{}",
        "[{}]",
        "[{\"a\": \"b\", \"c\": \"d\"}]",
        "[{\"a\": 1}]",
        "[\"eq\"]",
        "[[\"eq\", \"$a\"]]",
        "[[\"eq\", \"a\", \"b\"]]",
        "[[\"eq\", \"$a\", 1]]",
        "[[\"ends-with\", \"$a\", \"b\"]]",
        "[[\"content-length-range\", 0]]",
        "[[\"content-length-range\", -1, 0]]",
        "[[\"content-length-range\", 0, 1.5]]",
        "[[\"content-length-range\", \"x\", 1]]",
        "[[]]",
    ] {
        texts.push(with(conditions));
    }
    for text in texts {
        assert!(matches!(PolicyDocument::parse(text.as_bytes()), Err(FormError::BadPolicy(_))), "{text}");
    }
    assert!(PolicyDocument::decode("not base64!").is_err());
    let encoded = base64::engine::general_purpose::STANDARD.encode(with("[]"));
    assert!(PolicyDocument::decode(&format!("{}\r\n{}", &encoded[..8], &encoded[8..])).is_ok());
}

#[test]
fn fields_become_headers() {
    let headers = form(&[
        ("key", "k"),
        ("acl", "private"),
        ("Content-Type", "text/plain"),
        ("x-amz-meta-name", "${filename}"),
        ("x-amz-date", "d"),
        ("x-amz-credential", "c"),
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("success_action_status", "201"),
        ("submit", "Upload"),
    ])
    .headers()
    .unwrap();
    let mut names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-type", "x-amz-acl", "x-amz-checksum-crc32", "x-amz-meta-name"]);
    assert_eq!(headers["x-amz-meta-name"], "cat.jpg");
    assert!(matches!(form(&[("x-amz-meta-a", "a\nb")]).headers(), Err(FormError::BadHeader(_))));
    assert!(matches!(form(&[("x-amz-meta-a b", "c")]).headers(), Err(FormError::BadHeader(_))));
}
