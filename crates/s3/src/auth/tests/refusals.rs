//! What must not pass, and the code that each refusal carries.

use proptest::prelude::*;

use super::*;
use crate::auth::sign::{Signer, Target};

fn code(request: &Request) -> Code {
    request.verify().expect_err("must be refused").code()
}

/// AWS's example with another `Authorization` header.
fn with_authorization(change: impl Fn(String) -> String) -> Request {
    let mut request = get_object();
    let changed = change(request.headers["authorization"].to_str().unwrap().to_owned());
    request.set("authorization", &changed);
    request
}

#[test]
fn no_signature_is_anonymous() {
    let mut request = Request::new(Method::GET, "/b/k", "list-type=2", &[("Host", "h")]);
    assert_eq!(request.verify().unwrap().sender, Sender::Anonymous);
    request.add("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    assert_eq!(request.verify().unwrap().payload, PayloadForm::StreamingUnsignedTrailer);
    request.set("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    assert_eq!(code(&request), Code::AccessDenied);
    request.set("x-amz-content-sha256", "abc");
    assert_eq!(code(&request), Code::InvalidArgument);
}

#[test]
fn every_changed_part_is_noticed() {
    get_object().verify().unwrap();
    let changed = |change: &dyn Fn(&mut Request)| {
        let mut request = get_object();
        change(&mut request);
        code(&request)
    };
    assert_eq!(changed(&|r| r.method = Method::PUT), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.path = "/test.txu".to_owned()), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.path = "//test.txt".to_owned()), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.path = "/x/../test.txt".to_owned()), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.query = "acl".to_owned()), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.set("range", "bytes=0-8")), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.add("range", "bytes=0-9")), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.set("host", "other.s3.amazonaws.com")), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.set("x-amz-date", "20130524T000001Z")), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.set("x-amz-content-sha256", "UNSIGNED-PAYLOAD")), Code::SignatureDoesNotMatch);
    assert_eq!(changed(&|r| r.set("x-amz-content-sha256", &EMPTY.to_uppercase())), Code::SignatureDoesNotMatch);
    // A header that nobody signs may change.
    let mut request = get_object();
    request.add("user-agent", "x");
    request.verify().unwrap();
}

#[test]
fn every_digit_of_the_signature_counts() {
    let text = get_object().headers["authorization"].to_str().unwrap().to_owned();
    let start = text.len() - 64;
    for given in start..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[given] = if bytes[given] == b'0' { b'1' } else { b'0' };
        let request = with_authorization(|_| String::from_utf8(bytes.clone()).unwrap());
        let error = request.verify().unwrap_err();
        let AuthError::Mismatch(facts) = &error else { panic!("{error:?}") };
        assert_eq!(facts.access_key, ACCESS_KEY);
        assert!(facts.canonical_request.as_ref().unwrap().starts_with("GET\n/test.txt\n\nhost:examplebucket"));
        assert!(facts.string_to_sign.starts_with("AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1"));
        // The right signature is nowhere in what the client is told.
        assert!(!format!("{error:?} {error} {:?}", error.details()).contains(&text[start..]));
    }
}

#[test]
fn headers_that_are_signed_and_absent() {
    let mut request = get_object();
    request.headers.remove("range");
    assert_eq!(request.verify().unwrap_err(), AuthError::SignedHeaderAbsent("range".to_owned()));
    assert_eq!(code(&request), Code::SignatureDoesNotMatch);
    let mut request = get_object();
    request.headers.remove("host");
    assert_eq!(code(&request), Code::SignatureDoesNotMatch);
    // HTTP/2 carries the host elsewhere.
    let head = Head { host: "examplebucket.s3.amazonaws.com", ..request.head() };
    Verifier::new(Options::default()).verify(&head, &Keys, THEN).unwrap();
}

#[test]
fn headers_that_are_present_and_not_signed() {
    let mut request = get_object();
    request.add("x-amz-acl", "public-read");
    request.add("x-amz-Acl-2", "x");
    let error = request.verify().unwrap_err();
    assert_eq!(error, AuthError::HeadersNotSigned(vec!["x-amz-acl".to_owned(), "x-amz-acl-2".to_owned()]));
    assert_eq!(error.code(), Code::AccessDenied);
    assert_eq!(error.details(), [("HeadersNotSigned", "x-amz-acl, x-amz-acl-2".to_owned())]);
}

#[test]
fn doubled_headers() {
    for name in ["x-amz-date", "x-amz-content-sha256"] {
        let mut request = get_object();
        let value = request.headers[name].to_str().unwrap().to_owned();
        request.add(name, &value);
        assert_eq!(code(&request), Code::AuthorizationHeaderMalformed, "{name}");
    }
    let mut request = get_object();
    let value = request.headers["authorization"].to_str().unwrap().to_owned();
    request.add("authorization", &value);
    assert_eq!(code(&request), Code::InvalidArgument);
    let mut request = get_object();
    request.query = "X-Amz-Signature=00".to_owned();
    assert_eq!(request.verify().unwrap_err(), AuthError::TwoMechanisms);
}

#[test]
fn time_and_scope() {
    get_object().verify_at(after(900)).unwrap();
    get_object().verify_at(after(-900)).unwrap();
    for seconds in [901, -901] {
        let error = get_object().verify_at(after(seconds)).unwrap_err();
        assert_eq!(error.code(), Code::RequestTimeTooSkewed);
        assert_eq!(error.details()[2], ("MaxAllowedSkewMilliseconds", "900000".to_owned()));
    }
    for date in ["", "20130524", "20130524T000000", "20139924T000000Z", "Fri, 24 May 2013 00:00:00 GMT"] {
        let mut request = get_object();
        request.set("x-amz-date", date);
        assert_eq!(code(&request), Code::AccessDenied, "{date}");
    }
    let mut request = get_object();
    request.headers.remove("x-amz-date");
    assert_eq!(request.verify().unwrap_err(), AuthError::NoDate);
    let scope = |text: &str| code(&with_authorization(|header| header.replace(SCOPE, text)));
    assert_eq!(scope("20130523/us-east-1/s3/aws4_request"), Code::AuthorizationHeaderMalformed);
    assert_eq!(scope("20130524/us-east-1/ec2/aws4_request"), Code::AuthorizationHeaderMalformed);
    assert_eq!(scope("20130524/us-east-1/s3/aws5_request"), Code::AuthorizationHeaderMalformed);
    assert_eq!(scope("//s3/aws4_request"), Code::AuthorizationHeaderMalformed);
    assert_eq!(scope("20130524/s3/aws4_request"), Code::AuthorizationHeaderMalformed);
    assert_eq!(scope(&format!("20130524/{}/s3/aws4_request", "r".repeat(65))), Code::AuthorizationHeaderMalformed);
    assert_eq!(scope("20130524/eu-west-1/s3/aws4_request"), Code::SignatureDoesNotMatch);
}

#[test]
fn keys_and_tokens() {
    let error = with_authorization(|header| header.replace(ACCESS_KEY, "NOBODY")).verify().unwrap_err();
    assert_eq!(error, AuthError::UnknownAccessKey("NOBODY".to_owned()));
    assert_eq!(error.code(), Code::InvalidAccessKeyId);
    assert_eq!(
        code(&with_authorization(|header| header.replace(ACCESS_KEY, "with/slash"))),
        Code::SignatureDoesNotMatch
    );

    let sign = |access_key, secret, token: Option<&str>| {
        let mut request = Request::new(Method::GET, "/", "", &[("Host", "h")]);
        if let Some(token) = token {
            request.add("x-amz-security-token", token);
        }
        let signer = Signer::new(access_key, Secret::new(secret), "r");
        let target = Target { method: &Method::GET, path: "/", query: "" };
        signer.sign(target, &mut request.headers, PayloadForm::Unsigned, THEN).unwrap();
        request.verify().map_err(|error| error.code())
    };
    sign("with/slash", "s", None).unwrap();
    sign("temporary", "t", Some("token")).unwrap();
    assert_eq!(sign("temporary", "t", Some("tokem")).unwrap_err(), Code::InvalidToken);
    assert_eq!(sign("temporary", "t", None).unwrap_err(), Code::InvalidToken);
    assert_eq!(sign(ACCESS_KEY, SECRET, Some("token")).unwrap_err(), Code::InvalidToken);
}

#[test]
fn malformed_authorization() {
    let cases = [
        ("", Code::InvalidArgument),
        ("Basic Zm9vOmJhcg==", Code::InvalidArgument),
        ("AWS HAHAHA", Code::InvalidArgument),
        ("AWS AKIAIOSFODNN7EXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=", Code::SignatureDoesNotMatch),
        ("AWS4-ECDSA-P256-SHA256 Credential=a", Code::NotImplemented),
        ("AWS4-HMAC-SHA256", Code::AuthorizationHeaderMalformed),
        ("AWS4-HMAC-SHA256 Credential=HAHAHA", Code::AuthorizationHeaderMalformed),
        ("AWS4-HMAC-SHA256 Credential=a,Credential=a", Code::AuthorizationHeaderMalformed),
        ("AWS4-HMAC-SHA256 Realm=a", Code::AuthorizationHeaderMalformed),
    ];
    for (header, expected) in cases {
        assert_eq!(code(&with_authorization(|_| header.to_owned())), expected, "{header}");
    }
    let list = |names: &str| {
        code(&with_authorization(|header| header.replace("host;range;x-amz-content-sha256;x-amz-date", names)))
    };
    for names in [
        "",
        "range;x-amz-content-sha256;x-amz-date",
        "range;host;x-amz-content-sha256;x-amz-date",
        "host;host;range;x-amz-content-sha256;x-amz-date",
        "Host;range;x-amz-content-sha256;x-amz-date",
        "host;;range",
    ] {
        assert_eq!(list(names), Code::AuthorizationHeaderMalformed, "{names}");
    }
    let many: Vec<String> = (0..=SIGNED_HEADERS_MAX).map(|index| format!("h{index:03}")).collect();
    assert_eq!(list(&many.join(";")), Code::AuthorizationHeaderMalformed);
    for form in ["STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER"] {
        let mut request = get_object();
        request.set("x-amz-content-sha256", form);
        assert_eq!(request.verify().unwrap_err(), AuthError::NotImplemented(form));
    }
    // Its header is signed here, so it cannot go away.
    let mut request = get_object();
    request.headers.remove("x-amz-content-sha256");
    assert_eq!(code(&request), Code::SignatureDoesNotMatch);
    request.add("content-length", "1");
    assert_eq!(code(&request), Code::InvalidRequest);
}

#[test]
fn malformed_presigned_urls() {
    let signer = Signer::new(ACCESS_KEY, Secret::new(SECRET), "r");
    let mut request = Request::new(Method::GET, "/b/k", "versionId=1", &[("Host", "h")]);
    let target = Target { method: &Method::GET, path: "/b/k", query: "versionId=1" };
    let query = signer.presign(target, &request.headers, EXPIRES_SECONDS_MAX, THEN).unwrap();
    assert!(signer.presign(target, &request.headers, EXPIRES_SECONDS_MAX + 1, THEN).is_err());
    request.query = query.clone();
    request.verify_at(after(EXPIRES_SECONDS_MAX as i64)).unwrap();
    let changed = |from: &str, to: &str| {
        assert!(query.contains(from));
        let request = Request { query: query.replace(from, to), ..request.clone() };
        request.verify().expect_err("must be refused").code()
    };
    let malformed = Code::AuthorizationQueryParametersError;
    assert_eq!(changed("Expires=604800", "Expires=604801"), malformed);
    assert_eq!(changed("Expires=604800", "Expires=-1"), malformed);
    assert_eq!(changed("Expires=604800", "Expires=x"), malformed);
    assert_eq!(changed("&X-Amz-Expires=604800", ""), malformed);
    assert_eq!(changed("X-Amz-Algorithm=AWS4-HMAC-SHA256&", ""), malformed);
    assert_eq!(changed("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"), Code::NotImplemented);
    assert_eq!(changed("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"), malformed);
    assert_eq!(changed("SignedHeaders=host", "SignedHeaders=range"), malformed);
    assert_eq!(changed("X-Amz-Date=2013", "X-Amz-Date=2013%zz"), malformed);
    assert_eq!(changed("X-Amz-Date=20130524", "X-Amz-Date=20130523"), malformed);
    assert_eq!(changed("&X-Amz-Date", "&X-Amz-Date=20130524T000000Z&X-Amz-Date"), malformed);
    assert_eq!(changed("Expires=604800", "Expires=604799"), Code::SignatureDoesNotMatch);
    assert_eq!(changed("versionId=1", "versionId=2"), Code::SignatureDoesNotMatch);
    assert_eq!(changed("versionId=1", "versionId=1&acl"), Code::SignatureDoesNotMatch);
    let mut unsigned = request.clone();
    unsigned.add("x-amz-acl", "private");
    assert_eq!(code(&unsigned), Code::AccessDenied);
}

#[test]
fn presigned_urls_live_as_long_as_they_say() {
    let signer = Signer::new(ACCESS_KEY, Secret::new(SECRET), "r");
    for expires in [1, 60, EXPIRES_SECONDS_MAX] {
        let mut request = Request::new(Method::GET, "/b/k", "", &[("Host", "h")]);
        let target = Target { method: &Method::GET, path: "/b/k", query: "" };
        request.query = signer.presign(target, &request.headers, expires, THEN).unwrap();
        let last = i64::try_from(expires).unwrap();
        // Again and again, until it has expired; then never more.
        for seconds in [0, 0, last, last] {
            request.verify_at(after(seconds)).unwrap();
        }
        for seconds in [last + 1, last + 1, last + 1_000_000_000] {
            let error = request.verify_at(after(seconds)).unwrap_err();
            assert!(matches!(error, AuthError::Expired { .. }), "{error:?}");
            assert_eq!(error.code(), Code::AccessDenied);
        }
    }
    let mut request = Request::new(Method::GET, "/b/k", "", &[("Host", "h")]);
    let target = Target { method: &Method::GET, path: "/b/k", query: "" };
    request.query = signer.presign(target, &request.headers, 0, THEN).unwrap();
    assert!(matches!(request.verify_at(THEN), Err(AuthError::Expired { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_heads_never_panic(
        authorization in "(AWS4-HMAC-SHA256 )?([ -~]|Credential=|/|,|Signature=|SignedHeaders=|host){0,40}",
        query in "([ -~]|X-Amz-[A-Z][a-z]{1,9}=|%|&){0,40}",
        path in "[ -~]{0,40}",
        date in "[0-9TZ]{0,17}",
        presigned in any::<bool>(),
    ) {
        let mut request = Request::new(Method::GET, &path, &query, &[("Host", "h"), ("x-amz-date", &date)]);
        if !presigned {
            request.add("authorization", &authorization);
        }
        if let Ok(verified) = request.verify() {
            prop_assert_eq!(verified.sender, Sender::Anonymous);
        }
    }
}
