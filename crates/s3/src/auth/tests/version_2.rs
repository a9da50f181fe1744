//! Signature Version 2: AWS's published examples, what must not pass, and what the signer and the verifier owe each other.

use proptest::prelude::*;

use super::*;
use crate::auth::sign::Target;

const BUCKET: &str = "awsexamplebucket1";
const BUCKET_HOST: &str = "awsexamplebucket1.us-west-1.s3.amazonaws.com";

/// A moment of the published examples, in the form of `Date`.
fn at(date: &str) -> Timestamp {
    Timestamp(date::AmzDate::parse_http(date).unwrap().seconds() * 1_000_000_000)
}

fn verify_in(request: &Request, bucket: Option<&str>, now: Timestamp) -> Result<Verified, AuthError> {
    Verifier::new(Options::default()).verify(&request.head().with_host_bucket(bucket), &Keys, now)
}

fn code_in(request: &Request, bucket: Option<&str>, now: Timestamp) -> Code {
    verify_in(request, bucket, now).expect_err("must be refused").code()
}

/// "Authentication examples" of the developer guide: method, host's bucket, path, query, headers, signature.
type Example<'e> = (&'e str, Option<&'e str>, &'e str, &'e str, &'e [(&'e str, &'e str)], &'e str);

const EXAMPLES: &[Example<'_>] = &[
    (
        "GET",
        Some(BUCKET),
        "/photos/puppy.jpg",
        "",
        &[("date", "Tue, 27 Mar 2007 19:36:42 +0000")],
        "qgk2+6Sv9/oM7G3qLEjTH1a1l1g=",
    ),
    (
        "PUT",
        Some(BUCKET),
        "/photos/puppy.jpg",
        "",
        &[("content-type", "image/jpeg"), ("content-length", "94328"), ("date", "Tue, 27 Mar 2007 21:15:45 +0000")],
        "iqRzw+ileNPu1fhspnRs8nOjjIA=",
    ),
    (
        "GET",
        Some(BUCKET),
        "/",
        "prefix=photos&max-keys=50&marker=puppy",
        &[("user-agent", "Mozilla/5.0"), ("date", "Tue, 27 Mar 2007 19:42:41 +0000")],
        "m0WP8eCtspQl5Ahe6L1SozdX9YA=",
    ),
    ("GET", Some(BUCKET), "/", "acl", &[("date", "Tue, 27 Mar 2007 19:44:46 +0000")], "82ZHiFIjc+WbcwFKGUVEQspPn+0="),
    (
        "DELETE",
        None,
        "/awsexamplebucket1/photos/puppy.jpg",
        "",
        &[("user-agent", "dotnet"), ("date", "Tue, 27 Mar 2007 21:20:26 +0000")],
        "XbyTlbQdu9Xw5o8P4iMwPktxQd8=",
    ),
    (
        "DELETE",
        None,
        "/johnsmith/photos/puppy.jpg",
        "",
        &[("date", "Tue, 27 Mar 2007 21:20:27 +0000"), ("x-amz-date", "Tue, 27 Mar 2007 21:20:26 +0000")],
        "R4dJ53KECjStyBO5iTBJZ4XVOaI=",
    ),
    (
        "PUT",
        Some("static.example.com"),
        "/db-backup.dat.gz",
        "",
        &[
            ("user-agent", "curl/7.15.5"),
            ("date", "Tue, 27 Mar 2007 21:06:08 +0000"),
            ("x-amz-acl", "public-read"),
            ("content-type", "application/x-download"),
            ("content-md5", "4gJE4saaMU4BqNR0kLY+lw=="),
            ("X-Amz-Meta-ReviewedBy", "joe@example.com"),
            ("X-Amz-Meta-ReviewedBy", "jane@example.com"),
            ("X-Amz-Meta-FileChecksum", "0x02661779"),
            ("X-Amz-Meta-ChecksumAlgorithm", "crc32"),
            ("content-disposition", "attachment; filename=database.dat"),
            ("content-encoding", "gzip"),
            ("content-length", "5913339"),
        ],
        "jtBQa0Aq+DkULFI8qrpwIjGEx0E=",
    ),
    ("GET", None, "/", "", &[("date", "Wed, 28 Mar 2007 01:29:59 +0000")], "qGdzdERIC03wnaRNKh6OqZehG9s="),
    (
        "GET",
        None,
        "/dictionary/fran%C3%A7ais/pr%c3%a9f%c3%a8re",
        "",
        &[("date", "Wed, 28 Mar 2007 01:49:49 +0000")],
        "DNEZGsoieTZ92F3bUfSPQcbGmlM=",
    ),
];

/// The request of an example, and the moment when it was made.
fn example(number: usize) -> (Request, Option<&'static str>, Timestamp) {
    let (method, bucket, path, query, headers, signature) = EXAMPLES[number];
    let mut request = Request::new(method.parse().unwrap(), path, query, headers);
    request.add("host", BUCKET_HOST);
    request.add("authorization", &format!("AWS {ACCESS_KEY}:{signature}"));
    let date = request.headers.get("x-amz-date").unwrap_or(&request.headers["date"]);
    let now = at(date.to_str().unwrap());
    (request, bucket, now)
}

#[test]
fn published_headers() {
    for number in 0..EXAMPLES.len() {
        let (request, bucket, now) = example(number);
        let verified = verify_in(&request, bucket, now).unwrap_or_else(|error| panic!("example {number}: {error:?}"));
        let access_key = ACCESS_KEY.to_owned();
        assert_eq!(verified.sender, Sender::Key { access_key, version: Version::V2, given: CredentialSource::Header });
        assert_eq!(verified.payload, PayloadForm::Unsigned);
        assert!(verified.chain.is_none());
    }
}

#[test]
fn a_bucket_in_the_path_may_be_signed_with_a_slash_behind_it() {
    let signer = v2::Signer::new(ACCESS_KEY, &Secret::new(SECRET));
    let signed = |path: &str| {
        let mut request = Request::new(Method::PUT, path, "acl", &[("host", "h")]);
        let target = Target { method: &Method::PUT, path, query: "acl" };
        signer.sign(target, None, &mut request.headers, THEN).unwrap();
        request
    };
    let sent_as = |signed_path: &str, path: &str| {
        let request = Request { path: path.to_owned(), ..signed(signed_path) };
        verify_in(&request, None, THEN)
    };
    sent_as("/bucket/", "/bucket").unwrap();
    // Nothing else is another path than it was signed for.
    for (signed_path, path) in [("/bucket", "/bucket/"), ("/bucket/key/", "/bucket/key"), ("//", "/"), ("/b/", "/c")] {
        assert_eq!(sent_as(signed_path, path).unwrap_err().code(), Code::SignatureDoesNotMatch, "{path}");
    }
}

/// What boto3 1.44.5 sends of a bucket in path style: the path is `/bucket`, its signature is about `/bucket/`.
#[test]
fn boto3_closes_the_path_of_a_bucket() {
    let date = "Sat, 21 Nov 2026 20:07:50 GMT";
    let listing = "list-type=2&encoding-type=url";
    let requests = [
        ("PUT", "/bucket", "", "zZqs+7MzG6+uunWBX8+MfksJmq0="),
        ("GET", "/bucket", listing, "ZdzWdpy1A50rc2LhCiHQE2oJgQc="),
        ("GET", "/bucket", "acl", "lxltr67vZNeuctvkeRZ2788XSR8="),
    ];
    let request = |method: &str, path: &str, query: &str, signature: &str| {
        let authorization = format!("AWS {ACCESS_KEY}:{signature}");
        let headers = [("date", date), ("authorization", authorization.as_str())];
        Request::new(method.parse().unwrap(), path, query, &headers)
    };
    for (method, path, query, signature) in requests {
        verify_in(&request(method, path, query, signature), None, at(date)).expect(signature);
        for other in ["/", "/bucke", "/bucket//", "/bucket/k"] {
            let other = request(method, other, query, signature);
            assert_eq!(code_in(&other, None, at(date)), Code::SignatureDoesNotMatch, "{}", other.path);
        }
        // A key of a bucket that the host names.
        let key = request(method, "/bucket", query, signature);
        assert_eq!(code_in(&key, Some("bucket"), at(date)), Code::SignatureDoesNotMatch);
    }
    let query = "encoding-type=url&AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=34f4F%2BFFQXY3oDMc%2BpTcP92YpP8%3D\
                 &Expires=1795295270";
    verify_in(&Request::new(Method::GET, "/bucket", query, &[]), None, at(date)).expect("a presigned URL");
}

fn published_url() -> Request {
    let query = "AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D&Expires=1175139620";
    Request::new(Method::GET, "/photos/puppy.jpg", query, &[("host", "johnsmith.s3.amazonaws.com")])
}

#[test]
fn published_url_until_its_last_second() {
    let end = Timestamp(1_175_139_620_000_000_000);
    let later = |seconds: i64| Timestamp(end.0 + seconds * 1_000_000_000);
    let verified = verify_in(&published_url(), Some("johnsmith"), end).unwrap();
    assert!(matches!(verified.sender, Sender::Key { version: Version::V2, given: CredentialSource::Query, .. }));
    // Nothing says when it began.
    verify_in(&published_url(), Some("johnsmith"), later(-1_000_000)).unwrap();
    let error = verify_in(&published_url(), Some("johnsmith"), later(1)).unwrap_err();
    assert_eq!(error.code(), Code::AccessDenied);
    assert!(matches!(&error, AuthError::Expired { expires, .. } if expires == "2007-03-29T03:40:20Z"));
    // A plus sign that a careless client left as it is.
    let mut request = published_url();
    request.query = request.query.replace("%2B", "+");
    verify_in(&request, Some("johnsmith"), end).unwrap();
}

#[test]
fn every_covered_part_is_noticed() {
    let changed = |number: usize, change: &dyn Fn(&mut Request)| {
        let (mut request, bucket, now) = example(number);
        change(&mut request);
        code_in(&request, bucket, now)
    };
    let no_match = Code::SignatureDoesNotMatch;
    assert_eq!(changed(0, &|r| r.method = Method::HEAD), no_match);
    assert_eq!(changed(0, &|r| r.path = "/photos/puppy.jpeg".to_owned()), no_match);
    assert_eq!(changed(0, &|r| r.path = "//photos/puppy.jpg".to_owned()), no_match);
    assert_eq!(changed(0, &|r| r.set("date", "Tue, 27 Mar 2007 19:36:43 +0000")), no_match);
    assert_eq!(changed(0, &|r| r.set("date", "Tue, 27 Mar 2007 19:36:42 GMT")), no_match);
    assert_eq!(changed(0, &|r| r.add("content-type", "text/html")), no_match);
    assert_eq!(changed(0, &|r| r.add("content-md5", "4gJE4saaMU4BqNR0kLY+lw==")), no_match);
    assert_eq!(changed(0, &|r| r.add("x-amz-acl", "public-read")), no_match);
    assert_eq!(changed(0, &|r| r.add("x-amz-copy-source", "/b/k")), no_match);
    assert_eq!(changed(6, &|r| r.set("x-amz-acl", "private")), no_match);
    assert_eq!(changed(6, &|r| r.add("x-amz-meta-reviewedby", "x")), no_match);
    assert_eq!(changed(6, &|r| drop(r.headers.remove("x-amz-meta-filechecksum"))), no_match);
    assert_eq!(changed(3, &|r| r.query = String::new()), no_match);
    assert_eq!(changed(3, &|r| r.query = "acl&acl".to_owned()), no_match);
    for name in v2::SUBRESOURCES {
        assert_eq!(changed(0, &|r| r.query = (*name).to_owned()), no_match, "{name}");
        assert_eq!(changed(0, &|r| r.query = format!("x=1&{name}=1")), no_match, "{name}");
    }
    // A name is what it decodes to.
    assert_eq!(changed(0, &|r| r.query = "%61cl".to_owned()), no_match);
    let (request, _, now) = example(0);
    assert_eq!(code_in(&request, Some("awsexamplebucket2"), now), no_match);
    assert_eq!(code_in(&request, None, now), no_match);
    // What Version 2 leaves out may change.
    let (mut request, bucket, now) = example(0);
    request.query = "prefix=a&x-id=GetObject".to_owned();
    request.add("range", "bytes=0-1");
    verify_in(&request, bucket, now).unwrap();
}

#[test]
fn every_character_of_the_signature_counts() {
    let (request, bucket, now) = example(0);
    let text = request.headers["authorization"].to_str().unwrap().to_owned();
    let start = text.rfind(':').unwrap() + 1;
    for given in start..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[given] = if bytes[given] == b'A' { b'B' } else { b'A' };
        let mut request = request.clone();
        request.set("authorization", &String::from_utf8(bytes).unwrap());
        let error = verify_in(&request, bucket, now).unwrap_err();
        let AuthError::Mismatch(facts) = &error else { panic!("{error:?}") };
        assert_eq!(
            facts.string_to_sign,
            format!("GET\n\n\nTue, 27 Mar 2007 19:36:42 +0000\n/{BUCKET}/photos/puppy.jpg")
        );
        assert!(!format!("{error:?} {error} {:?}", error.details()).contains(&text[start..]));
    }
}

#[test]
fn malformed_headers() {
    let (request, bucket, now) = example(0);
    let with = |header: &str| {
        let mut request = request.clone();
        request.set("authorization", header);
        code_in(&request, bucket, now)
    };
    let signature = EXAMPLES[0].5;
    for header in ["AWS", "AWS ", "AWS x", "AWS :", "AWS :x", "AWS x:", &format!("AWS {}:x", "k".repeat(129))] {
        assert_eq!(with(header), Code::InvalidArgument, "{header}");
    }
    assert_eq!(with(&format!("AWS NOBODY:{signature}")), Code::InvalidAccessKeyId);
    assert_eq!(with(&format!("AWS with/slash:{signature}")), Code::SignatureDoesNotMatch);
    for wrong in ["x", "====", "ü", &"A".repeat(1000), &signature[1..], &format!("{signature}{signature}")] {
        let code = with(&format!("AWS {ACCESS_KEY}:{wrong}"));
        assert!([Code::SignatureDoesNotMatch, Code::AuthorizationHeaderMalformed].contains(&code), "{wrong}");
    }
    let mut two = request.clone();
    two.add("authorization", &format!("AWS {ACCESS_KEY}:{signature}"));
    assert_eq!(code_in(&two, bucket, now), Code::InvalidArgument);
    let mut both = request.clone();
    both.query = "Signature=x".to_owned();
    assert_eq!(verify_in(&both, bucket, now).unwrap_err(), AuthError::TwoMechanisms);
}

#[test]
fn times() {
    let (request, bucket, now) = example(0);
    let later = |seconds: i64| Timestamp(now.0 + seconds * 1_000_000_000);
    for seconds in [900, -900] {
        verify_in(&request, bucket, later(seconds)).unwrap();
    }
    for seconds in [901, -901] {
        assert_eq!(code_in(&request, bucket, later(seconds)), Code::RequestTimeTooSkewed);
    }
    for date in ["", "yesterday", "27 Mar", "Tue, 99 Mar 2007 19:36:42 +0000", "1175024202"] {
        let mut request = request.clone();
        request.set("date", date);
        assert_eq!(verify_in(&request, bucket, now).unwrap_err(), AuthError::NoDate, "{date}");
        // It counts in the place of a good Date.
        let (mut request, bucket, now) = example(0);
        request.set("x-amz-date", date);
        assert_eq!(verify_in(&request, bucket, now).unwrap_err(), AuthError::NoDate, "{date}");
    }
    let mut dateless = request.clone();
    dateless.headers.remove("date");
    assert_eq!(code_in(&dateless, bucket, now), Code::AccessDenied);
    let (mut twice, bucket, now) = example(5);
    twice.add("date", "Tue, 27 Mar 2007 21:20:27 +0000");
    verify_in(&twice, bucket, now).expect("beside x-amz-date nobody reads Date");
    twice.add("x-amz-date", "Tue, 27 Mar 2007 21:20:26 +0000");
    assert_eq!(code_in(&twice, bucket, now), Code::AuthorizationHeaderMalformed);
    let (mut twice, bucket, now) = example(0);
    twice.add("date", "Tue, 27 Mar 2007 19:36:42 +0000");
    assert_eq!(code_in(&twice, bucket, now), Code::AuthorizationHeaderMalformed);
}

#[test]
fn malformed_urls() {
    let now = Timestamp(1_175_139_620_000_000_000);
    let with = |query: &str| {
        let request = Request { query: query.to_owned(), ..published_url() };
        verify_in(&request, Some("johnsmith"), now).expect_err("must be refused")
    };
    let good = published_url().query;
    for missing in
        ["AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE", "&Expires=1175139620", "&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D"]
    {
        let query = good.replace(missing, "");
        assert_eq!(with(&query), AuthError::IncompleteV2Query, "{query}");
    }
    for expires in ["x", "-1", "1.5", "+1", "99999999999999999999", "1175139620%0A"] {
        let error = with(&good.replace("1175139620", expires));
        assert_eq!(error, AuthError::BadExpires, "{expires}");
        assert_eq!(error.code(), Code::AccessDenied);
    }
    assert_eq!(with(&good.replace("1175139620", "1175139621")).code(), Code::SignatureDoesNotMatch);
    assert_eq!(with(&good.replace("1175139620", "9223372036854775807")).code(), Code::SignatureDoesNotMatch);
    assert_eq!(with(&format!("{good}&Expires=1175139620")).code(), Code::InvalidArgument);
    assert_eq!(with(&format!("{good}&acl")).code(), Code::SignatureDoesNotMatch);
    assert_eq!(with(&format!("{good}&x-amz-acl=public-read")).code(), Code::SignatureDoesNotMatch);
    assert_eq!(with(&format!("{good}&content-type=text/html")).code(), Code::SignatureDoesNotMatch);
    assert_eq!(with(&format!("{good}&x-amz-meta-a=1%0Ax-amz-acl:public-read")).code(), Code::InvalidArgument);
    assert_eq!(with(&format!("{good}&X-Amz-Signature=0")).code(), Code::AuthorizationQueryParametersError);
}

/// The value of a subresource is covered in the two ways that clients write it.
#[test]
fn values_are_signed_decoded_or_as_sent() {
    let key = v2::key(&Secret::new(SECRET));
    for resource in ["/b/k?response-content-type=a b", "/b/k?response-content-type=a%20b"] {
        let text = format!("GET\n\n\nTue, 27 Mar 2007 19:36:42 +0000\n{resource}");
        let signature = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            ring::hmac::sign(&key, text.as_bytes()).as_ref(),
        );
        let headers =
            [("date", "Tue, 27 Mar 2007 19:36:42 +0000"), ("authorization", &format!("AWS {ACCESS_KEY}:{signature}"))];
        let request = Request::new(Method::GET, "/b/k", "response-content-type=a%20b", &headers);
        verify_in(&request, None, at("Tue, 27 Mar 2007 19:36:42 +0000")).unwrap();
    }
}

#[test]
fn version_2_can_be_switched_off() {
    let verifier = Verifier::new(Options { version_2: false, ..Options::default() });
    let (request, _, now) = example(0);
    for request in [request, published_url()] {
        let error = verifier.verify(&request.head(), &Keys, now).unwrap_err();
        assert_eq!((error.clone(), error.code()), (AuthError::SignatureV2, Code::InvalidRequest));
    }
    verifier.verify(&get_object().head(), &Keys, THEN).unwrap();
}

#[test]
fn payload_forms() {
    let form = |headers: &[(&str, &str)]| {
        let mut request = Request::new(Method::PUT, "/b/k", "", headers);
        let signer = v2::Signer::new(ACCESS_KEY, &Secret::new(SECRET));
        let target = Target { method: &Method::PUT, path: "/b/k", query: "" };
        signer.sign(target, None, &mut request.headers, THEN).unwrap();
        request.verify().map(|verified| verified.payload)
    };
    let length = ("x-amz-decoded-content-length", "5");
    assert_eq!(form(&[]).unwrap(), PayloadForm::Unsigned);
    assert_eq!(form(&[("x-amz-content-sha256", EMPTY)]).unwrap(), PayloadForm::parse(EMPTY).unwrap());
    assert_eq!(
        form(&[("content-encoding", "gzip, aws-chunked"), length]).unwrap(),
        PayloadForm::StreamingUnsignedTrailer
    );
    assert_eq!(form(&[("content-encoding", "gzip"), length]).unwrap(), PayloadForm::Unsigned);
    let signed = form(&[("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")]);
    assert_eq!(signed.unwrap_err(), AuthError::SignedChunksWithoutV4);
    assert_eq!(form(&[("x-amz-content-sha256", "abc")]).unwrap_err(), AuthError::BadContentSha256);
}

#[test]
fn temporary_keys_need_their_token() {
    let signer = v2::Signer::new("temporary", &Secret::new("t"));
    let target = Target { method: &Method::GET, path: "/b/k", query: "" };
    let by_header = |token: Option<&str>| {
        let mut request = Request::new(Method::GET, "/b/k", "", &[]);
        if let Some(token) = token {
            request.add("x-amz-security-token", token);
        }
        signer.sign(target, None, &mut request.headers, THEN).unwrap();
        request.verify().map(drop).map_err(|error| error.code())
    };
    by_header(Some("token")).unwrap();
    assert_eq!(by_header(Some("tokem")), Err(Code::InvalidToken));
    assert_eq!(by_header(None), Err(Code::InvalidToken));
    let by_query = |query: &str| {
        let mut request = Request::new(Method::GET, "/b/k", "", &[]);
        request.query = signer.presign(Target { query, ..target }, None, &request.headers, 2_000_000_000).unwrap();
        request.verify().map(drop).map_err(|error| error.code())
    };
    by_query("x-amz-security-token=token").unwrap();
    assert_eq!(by_query("x-amz-security-token=tokem"), Err(Code::InvalidToken));
    assert_eq!(by_query(""), Err(Code::InvalidToken));
}

#[test]
fn headers_in_the_query_count_as_headers() {
    let own = Request::new(Method::PUT, "/", "", &[("x-amz-acl", "private"), ("content-type", "text/plain")]).headers;
    let join = |query: &str| hoisted::join(query, presigned::version(query), &own);
    assert!(matches!(join("x-amz-meta-a=1"), Ok(std::borrow::Cow::Borrowed(_))));
    let v2 =
        join("Signature=x&x-amz-meta-a=1%2C2&content-type=text/html&content-md5=m&x-amz-security-token=t").unwrap();
    let got = |name: &str| v2.get(name).map(|value| value.to_str().unwrap());
    assert_eq!((got("x-amz-meta-a"), got("content-md5"), got("x-amz-security-token")), (Some("1,2"), Some("m"), None));
    assert_eq!(got("content-type"), Some("text/plain"));
    let v4 = join("X-Amz-Signature=x&x-amz-acl=private&content-md5=m&x-amz-checksum-mode=ENABLED").unwrap();
    assert_eq!(v4["x-amz-checksum-mode"], "ENABLED");
    assert!(!v4.contains_key("content-md5"));
    // The sum of no body, which the maker of a URL had.
    for sum in ["x-amz-checksum-crc32=AAAAAA%3D%3D", "x-amz-sdk-checksum-algorithm=CRC32", "x-amz-checksum-xxhash3=x"] {
        let joined = join(&format!("X-Amz-Signature=x&{sum}")).unwrap();
        assert!(matches!(joined, std::borrow::Cow::Borrowed(_)), "{sum}");
        assert_eq!(join(&format!("Signature=x&{sum}")).unwrap().len(), own.len() + 1, "{sum}");
    }
    for bad in ["x-amz-acl=public-read", "x-amz-a=1&x-amz-a=1", "x-amz-b=%0A", "x-amz-%20=1"] {
        let error = join(&format!("X-Amz-Signature=x&{bad}")).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_the_signer_signs_the_verifier_believes(
        path in "/[!-\"$->@-~]{0,40}",
        query in "([!-\"$-%'-~]|acl|uploadId=|&){0,20}",
        value in "[!-~]{0,30}",
        host_bucket in proptest::option::of("[a-z]{3}"),
    ) {
        prop_assume!(presigned::version(&query).is_none());
        prop_assume!(!["x-amz-", "content-", "Expires"].iter().any(|name| query.contains(name)));
        prop_assume!(canonical::pairs(&query).all(|(name, value)| canonical::decode(name).is_some() && canonical::decode(value).is_some()));
        let signer = v2::Signer::new(ACCESS_KEY, &Secret::new(SECRET));
        let target = Target { method: &Method::GET, path: &path, query: &query };
        let mut request = Request::new(Method::GET, &path, &query, &[("host", "h"), ("x-amz-meta-v", &value)]);
        let url = signer.presign(target, host_bucket.as_deref(), &request.headers, 1_400_000_000).unwrap();
        let presigned = Request { query: url, ..request.clone() };
        prop_assert!(verify_in(&presigned, host_bucket.as_deref(), THEN).is_ok());
        signer.sign(target, host_bucket.as_deref(), &mut request.headers, THEN).unwrap();
        prop_assert!(verify_in(&request, host_bucket.as_deref(), THEN).is_ok());
    }

    #[test]
    fn random_version_2_heads_never_panic(
        authorization in "AWS ([ -~]|:|AKIA){0,40}",
        query in "([ -~]|Expires=|Signature=|AWSAccessKeyId=|%|&){0,40}",
        date in "[0-9A-Za-z:, +]{0,32}",
    ) {
        let headers = [("date", date.as_str()), ("authorization", authorization.as_str())];
        let header = Request::new(Method::GET, "/", &query, &headers);
        prop_assert!(header.verify().is_err());
        let url = Request::new(Method::GET, "/", &format!("{query}&Signature=x"), &[]);
        prop_assert!(url.verify().is_err());
    }
}
