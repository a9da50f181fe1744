//! What the signer makes, the verifier takes, however a client writes it down.

use proptest::prelude::*;

use super::*;
use crate::auth::sign::{Signer, Target};

fn signed(path: &str, query: &str, headers: &[(&str, &str)], payload: PayloadForm) -> Request {
    let mut request = Request::new(Method::PUT, path, query, headers);
    let signer = Signer::new(ACCESS_KEY, Secret::new(SECRET), "eu-central-1");
    let target = Target { method: &request.method, path: &request.path, query: &request.query };
    signer.sign(target, &mut request.headers, payload, THEN).unwrap();
    request
}

#[test]
fn all_payload_forms() {
    for payload in [
        PayloadForm::Unsigned,
        PayloadForm::Sha256([7; 32]),
        PayloadForm::StreamingSigned,
        PayloadForm::StreamingSignedTrailer,
        PayloadForm::StreamingUnsignedTrailer,
    ] {
        let verified = signed("/b/k", "", &[("host", "h")], payload).verify().unwrap();
        assert_eq!(verified.payload, payload);
        assert_eq!(verified.chain.is_some(), payload.has_signed_chunks());
        assert_eq!(PayloadForm::parse(&payload.header_value()).unwrap(), payload);
    }
}

#[test]
fn values_that_clients_write_differently() {
    // Doubled headers are joined, spaces trimmed and shrunk; proxies may fold them differently.
    let headers = [("host", "h"), ("x-amz-meta-a", " 1 "), ("x-amz-meta-a", "2   3")];
    let mut request = signed("/b/k", "", &headers, PayloadForm::Unsigned);
    request.verify().unwrap();
    request.set("x-amz-meta-a", "1,2 3");
    request.verify().unwrap();
    request.set("x-amz-meta-a", "1,23");
    assert_eq!(request.verify().unwrap_err().code(), Code::SignatureDoesNotMatch);

    // A client that escapes more or less than AWS says still has the same path and query.
    let mut request = signed("/b/a%20b+c/%7E", "prefix=a%20b&x=%2F", &[("host", "h")], PayloadForm::Unsigned);
    request.verify().unwrap();
    request.path = "/b/a%20b%2bc/~".to_owned();
    request.query = "x=/&prefix=a+b".to_owned();
    request.verify().unwrap();
    request.query = "x=/&prefix=a%2Bb".to_owned();
    assert!(request.verify().is_err());
}

#[test]
fn a_client_that_signs_its_own_escapes() {
    // The canonical request holds the path and the query as they are on the wire, not as AWS encodes them.
    let request = Request::new(
        Method::GET,
        "/b/a(1)",
        "prefix=a*&acl",
        &[("host", "h"), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), ("x-amz-date", "20130524T000000Z")],
    );
    let canonical = "GET\n/b/a(1)\nprefix=a*&acl\nhost:h\nx-amz-content-sha256:UNSIGNED-PAYLOAD\n\
                     x-amz-date:20130524T000000Z\n\nhost;x-amz-content-sha256;x-amz-date\nUNSIGNED-PAYLOAD";
    let key = SigningKey::derive(&Secret::new(SECRET), Scope::new(*b"20130524", "us-east-1"));
    let text = v4::string_to_sign("20130524T000000Z", &Scope::new(*b"20130524", "us-east-1"), canonical.as_bytes());
    let mut raw = request;
    raw.add("authorization", &authorization("host;x-amz-content-sha256;x-amz-date", &hex::text(&key.sign(&text))));
    raw.verify().unwrap();
}

/// As curl 7.88 signs `--aws-sigv4 aws:amz:us-east-1:s3`.
#[test]
fn a_client_that_does_not_name_its_payload() {
    let canonical =
        format!("GET\n/b/k\n\nhost:h\nx-amz-date:20130524T000000Z\n\nhost;x-amz-date\n{EMPTY}").into_bytes();
    let scope = Scope::new(*b"20130524", "us-east-1");
    let text = v4::string_to_sign("20130524T000000Z", &scope, &canonical);
    let signature = hex::text(&SigningKey::derive(&Secret::new(SECRET), scope).sign(&text));
    let mut request = Request::new(Method::GET, "/b/k", "", &[("host", "h"), ("x-amz-date", "20130524T000000Z")]);
    request.add("authorization", &authorization("host;x-amz-date", &signature));
    let verified = request.verify().unwrap();
    assert_eq!(verified.payload, PayloadForm::parse(EMPTY).unwrap());
    assert_eq!(verified.sender.access_key(), Some(ACCESS_KEY));
    for (name, value) in [("content-length", "5"), ("transfer-encoding", "chunked")] {
        let mut with_body = request.clone();
        with_body.add(name, value);
        assert_eq!(with_body.verify().unwrap_err(), AuthError::NoContentSha256);
    }
}

#[test]
fn a_cached_key_serves_and_a_changed_secret_does_not() {
    struct Changing(parking_lot::Mutex<&'static str>);
    impl Credentials for Changing {
        fn find(&self, _: &str) -> Option<Credential> {
            let secret = *self.0.lock();
            (!secret.is_empty()).then(|| Credential { secret: Secret::new(secret), session_token: None })
        }
    }
    let verifier = Verifier::new(Options::default());
    let keys = Changing(parking_lot::Mutex::new(SECRET));
    let request = get_object();
    for _ in 0..3 {
        verifier.verify(&request.head(), &keys, THEN).unwrap();
    }
    *keys.0.lock() = "another";
    assert!(matches!(verifier.verify(&request.head(), &keys, THEN), Err(AuthError::Mismatch(_))));
    *keys.0.lock() = "";
    assert!(matches!(verifier.verify(&request.head(), &keys, THEN), Err(AuthError::UnknownAccessKey(_))));
    *keys.0.lock() = SECRET;
    verifier.verify(&request.head(), &keys, THEN).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_target_and_headers(
        path in "/[!-\"$->@-~]{0,40}",
        query in "[!-\"$-~]{0,40}",
        value in "[ -~]{0,30}",
        expires in 1..=EXPIRES_SECONDS_MAX,
    ) {
        prop_assume!(presigned::version(&query).is_none());
        let headers = [("host", "h:9000"), ("x-amz-meta-v", value.as_str())];
        let request = signed(&path, &query, &headers, PayloadForm::Unsigned);
        request.verify().unwrap();

        let mut request = Request::new(Method::GET, &path, &query, &headers);
        let signer = Signer::new(ACCESS_KEY, Secret::new(SECRET), "r");
        let target = Target { method: &Method::GET, path: &path, query: &query };
        request.query = signer.presign(target, &request.headers, expires, THEN).unwrap();
        request.verify_at(after(expires as i64)).unwrap();
    }
}
