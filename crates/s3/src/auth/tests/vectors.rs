//! The examples that AWS publishes in "Authenticating Requests (AWS Signature Version 4)" of the S3 API reference.

use super::*;
use crate::auth::sign::{Signer, Target};

const BUCKET_HOST: &str = "examplebucket.s3.amazonaws.com";
const WELCOME: &str = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
const PLAIN: &str = "host;x-amz-content-sha256;x-amz-date";

/// Verifies a published request and makes the same signature with the signer.
fn check(mut request: Request, signed_headers: &str, signature: &str) -> Verified {
    let published = authorization(signed_headers, signature);
    request.set("authorization", &published);
    let verified = request.verify().unwrap();
    let access_key = ACCESS_KEY.to_owned();
    assert_eq!(verified.sender, Sender::Key { access_key, version: Version::V4, given: CredentialSource::Header });

    let mut headers = request.headers.clone();
    headers.remove("authorization");
    let signer = Signer::new(ACCESS_KEY, Secret::new(SECRET), "us-east-1");
    let target = Target { method: &request.method, path: &request.path, query: &request.query };
    signer.sign(target, &mut headers, verified.payload, THEN).unwrap();
    assert_eq!(headers["authorization"], *published);
    verified
}

fn plain(method: Method, path: &str, query: &str) -> Request {
    Request::new(
        method,
        path,
        query,
        &[("Host", BUCKET_HOST), ("x-amz-content-sha256", EMPTY), ("x-amz-date", "20130524T000000Z")],
    )
}

#[test]
fn get_object_with_range() {
    let mut request = get_object();
    request.headers.remove("authorization");
    check(
        request,
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
}

#[test]
fn put_object() {
    let mut request = plain(Method::PUT, "/test%24file.text", "");
    request.set("x-amz-content-sha256", WELCOME);
    request.add("Date", "Fri, 24 May 2013 00:00:00 GMT");
    request.add("x-amz-storage-class", "REDUCED_REDUNDANCY");
    let signed = "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class";
    let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
    let verified = check(request.clone(), signed, signature);
    assert!(matches!(verified.payload, PayloadForm::Sha256(_)));

    // The path may come with the dollar sign as it is.
    request.path = "/test$file.text".to_owned();
    request.add("authorization", &authorization(signed, signature));
    request.verify().unwrap();
}

#[test]
fn get_bucket_lifecycle() {
    let signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
    check(plain(Method::GET, "/", "lifecycle"), PLAIN, signature);
    check(plain(Method::GET, "/", "lifecycle="), PLAIN, signature);
}

#[test]
fn list_objects() {
    let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
    check(plain(Method::GET, "/", "max-keys=2&prefix=J"), PLAIN, signature);
    check(plain(Method::GET, "/", "prefix=J&max-keys=2"), PLAIN, signature);
    check(plain(Method::GET, "", "prefix=%4a&max-keys=2"), PLAIN, signature);
}

/// The head of both chunked upload examples.
pub(in crate::auth) fn chunked_put(form: &str) -> Request {
    Request::new(
        Method::PUT,
        "/examplebucket/chunkObject.txt",
        "",
        &[
            ("Host", "s3.amazonaws.com"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("x-amz-content-sha256", form),
            ("Content-Encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", "66560"),
        ],
    )
}

#[test]
fn put_object_in_chunks() {
    let mut request = chunked_put("STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    request.add("Content-Length", "66824");
    let mut chain = check(
        request,
        "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;\
         x-amz-storage-class",
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
    )
    .chain
    .unwrap();
    for (payload, signature) in [
        (&[b'a'; 65_536][..], b"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (&[b'a'; 1024], b"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (b"", b"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ] {
        assert_eq!(chain.sign_chunk(payload), *signature);
    }
}

#[test]
fn put_object_in_chunks_with_a_trailer() {
    let mut request = chunked_put("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER");
    request.add("x-amz-trailer", "x-amz-checksum-crc32c");
    let mut chain = check(
        request,
        "content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;\
         x-amz-trailer",
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
    )
    .chain
    .unwrap();
    for (payload, signature) in [
        (&[b'a'; 65_536][..], b"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"),
        (&[b'a'; 1024], b"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"),
        (b"", b"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"),
    ] {
        assert_eq!(chain.sign_chunk(payload), *signature);
    }
    let trailer = b"d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435";
    assert_eq!(chain.sign_trailer(b"x-amz-checksum-crc32c:sOO8/Q==\n"), *trailer);
}

#[test]
fn presigned_get_object() {
    let query = "X-Amz-Algorithm=AWS4-HMAC-SHA256\
        &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
        &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
        &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let request = Request::new(Method::GET, "/test.txt", query, &[("Host", BUCKET_HOST)]);
    let verified = request.verify().unwrap();
    assert!(matches!(verified.sender, Sender::Key { given: CredentialSource::Query, .. }));
    assert_eq!(verified.payload, PayloadForm::Unsigned);

    let signer = Signer::new(ACCESS_KEY, Secret::new(SECRET), "us-east-1");
    let target = Target { method: &Method::GET, path: "/test.txt", query: "" };
    assert_eq!(signer.presign(target, &request.headers, 86_400, THEN).unwrap(), query);

    // Valid to the last second, not before it was made, and not a second longer.
    request.verify_at(after(86_400)).unwrap();
    assert!(matches!(request.verify_at(after(86_401)), Err(AuthError::Expired { expires_seconds: Some(86_400), .. })));
    request.verify_at(after(-900)).unwrap();
    assert!(matches!(request.verify_at(after(-901)), Err(AuthError::NotYetValid { .. })));
}
