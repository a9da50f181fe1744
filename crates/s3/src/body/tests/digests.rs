//! Every announced digest is compared, and every wrong announcement has its own answer.

use super::*;
use crate::auth::Code;

const FOX: &[u8] = b"The quick brown fox jumps over the lazy dog";
/// Known answers for `FOX`.
const MD5: &str = "nhB9nTcrtoJr2B01QqQZ1g==";
const ANSWERS: [(Algorithm, &str); 5] = [
    (Algorithm::Crc32, "QU+jOQ=="),
    (Algorithm::Crc32c, "ImIEBA=="),
    (Algorithm::Crc64Nvme, "12xUBUlUwUM="),
    (Algorithm::Sha1, "L9ThxnotKPzthJ7hu3bnORuT6xI="),
    (Algorithm::Sha256, "16j7swfXgJRpypq8sAguT41WUeRtPNt2LQLQvzfJ5ZI="),
];

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    map
}

fn plan(pairs: &[(&'static str, &str)], form: PayloadForm) -> Result<DigestPlan, DigestError> {
    DigestPlan::read(&headers(pairs), &form, Want::default())
}

fn run(plan: DigestPlan, trailers: &Trailers) -> Result<Computed, DigestError> {
    let mut digests = plan.digests();
    for piece in FOX.chunks(5) {
        digests.update(piece);
    }
    digests.finish(trailers)
}

/// The trailers of a body that ended like this.
fn trailers(lines: &str) -> Trailers {
    let form = PayloadForm::StreamingUnsignedTrailer;
    let (headers, _) = begin(form, 0);
    decode(cut(format!("0\r\n{lines}\r\n").as_bytes(), &[99]), &headers, form, None).unwrap().1
}

/// A well-formed checksum that differs in one bit.
fn altered(algorithm: Algorithm, base64: &str) -> String {
    let mut value = Checksum::parse(algorithm, base64).unwrap().bytes().to_vec();
    value[0] ^= 1;
    Checksum::new(algorithm, &value).unwrap().base64()
}

#[test]
fn checksums_in_headers() {
    for (algorithm, answer) in ANSWERS {
        let right = plan(&[(algorithm.header(), answer)], PayloadForm::Unsigned).unwrap();
        assert_eq!(right.chosen(), Some(algorithm));
        let computed = run(right, &Trailers::default()).unwrap();
        assert_eq!(computed.bytes, FOX.len() as u64);
        assert_eq!(computed.checksum.map(|checksum| checksum.base64()).as_deref(), Some(answer));
        assert!(computed.chosen);

        let wrong = altered(algorithm, answer);
        let error = run(plan(&[(algorithm.header(), &wrong)], PayloadForm::Unsigned).unwrap(), &Trailers::default())
            .unwrap_err();
        assert_eq!(error.code(), Code::BadDigest);
        assert!(error.to_string().starts_with(&format!("The {} you specified", algorithm.name())));
        assert_eq!(error.details()[1], ("CalculatedDigest", answer.to_owned()));
        for bad in ["", "x", "AAAA", &answer[1..], &format!("{answer}=")] {
            let error = plan(&[(algorithm.header(), bad)], PayloadForm::Unsigned).unwrap_err();
            assert_eq!(error, DigestError::BadValue(algorithm.header()));
            assert_eq!(error.code(), Code::InvalidRequest);
        }
    }
}

#[test]
fn checksums_in_trailers() {
    let form = PayloadForm::StreamingUnsignedTrailer;
    for (algorithm, answer) in ANSWERS {
        let plan = || plan(&[("x-amz-trailer", algorithm.header())], form).unwrap();
        let right = trailers(&format!("{}:{answer}\r\n", algorithm.header()));
        assert_eq!(run(plan(), &right).unwrap().checksum.unwrap().base64(), answer);
        let wrong = trailers(&format!("{}:{}\r\n", algorithm.header(), altered(algorithm, answer)));
        assert_eq!(run(plan(), &wrong).unwrap_err().code(), Code::BadDigest);
        let bad = trailers(&format!("{}:x\r\n", algorithm.header()));
        assert_eq!(run(plan(), &bad).unwrap_err().code(), Code::InvalidRequest);
        assert_eq!(run(plan(), &Trailers::default()).unwrap_err().code(), Code::MalformedTrailerError);
        let other = trailers(&format!("{}:{answer}\r\nx:y\r\n", algorithm.header()));
        assert_eq!(run(plan(), &other).unwrap_err().code(), Code::MalformedTrailerError);
    }
    let unannounced = run(plan(&[], form).unwrap(), &trailers("x-amz-checksum-crc32:QU+jOQ==\r\n"));
    assert_eq!(unannounced.unwrap_err().code(), Code::MalformedTrailerError);
}

#[test]
fn content_md5() {
    let right = plan(&[("content-md5", MD5)], PayloadForm::Unsigned).unwrap();
    assert!(run(right, &Trailers::default()).unwrap().md5.is_some());
    let other = "1B2M2Y8AsgTpgAmY7PhCfg==";
    let wrong = plan(&[("content-md5", other)], PayloadForm::Unsigned).unwrap();
    let error = run(wrong, &Trailers::default()).unwrap_err();
    assert_eq!(error.code(), Code::BadDigest);
    assert_eq!(error.details(), [("ExpectedDigest", other.to_owned()), ("CalculatedDigest", MD5.to_owned())]);
    for bad in ["", "x", "AAAA", "9e107d9d372bb6826bd81d3542a419d6"] {
        let error = plan(&[("content-md5", bad)], PayloadForm::Unsigned).unwrap_err();
        assert_eq!(error.code(), Code::InvalidDigest, "{bad}");
    }
    assert_eq!(
        plan(&[("content-md5", MD5), ("content-md5", MD5)], PayloadForm::Unsigned).unwrap_err().code(),
        Code::InvalidDigest
    );
}

#[test]
fn payload_sha256() {
    let digest = Checksum::parse(Algorithm::Sha256, ANSWERS[4].1).unwrap().bytes().try_into().unwrap();
    assert!(run(plan(&[], PayloadForm::Sha256(digest)).unwrap(), &Trailers::default()).is_ok());
    let error = run(plan(&[], PayloadForm::Sha256([0; 32])).unwrap(), &Trailers::default()).unwrap_err();
    assert_eq!(error.code(), Code::XAmzContentSHA256Mismatch);
    assert!(error.details()[1].1.starts_with("d7a8fbb307d78094"));
}

#[test]
fn what_the_operation_wants() {
    let want = Want { md5: true, fallback: Some(Algorithm::Crc64Nvme) };
    let read = |pairs: &[(&'static str, &str)]| {
        run(DigestPlan::read(&headers(pairs), &PayloadForm::Unsigned, want).unwrap(), &Trailers::default()).unwrap()
    };
    let computed = read(&[]);
    assert_eq!(computed.checksum.unwrap().base64(), ANSWERS[2].1);
    assert!(computed.md5.is_some() && !computed.chosen && computed.sha256.is_none());
    let computed = read(&[("x-amz-checksum-sha1", ANSWERS[3].1)]);
    assert_eq!(computed.checksum.unwrap().algorithm(), Algorithm::Sha1);
    assert!(computed.chosen);
}

#[test]
fn announcements_that_are_refused() {
    let crc32 = ("x-amz-checksum-crc32", "QU+jOQ==");
    let crc32c = ("x-amz-checksum-crc32c", "ImIEBA==");
    let form = PayloadForm::StreamingUnsignedTrailer;
    let refused = |pairs: &[(&'static str, &str)], form| plan(pairs, form).unwrap_err();
    assert_eq!(refused(&[crc32, crc32c], form), DigestError::SeveralChecksums);
    assert_eq!(refused(&[crc32, crc32], form), DigestError::SeveralChecksums);
    assert_eq!(refused(&[crc32, ("x-amz-trailer", crc32c.0)], form), DigestError::SeveralChecksums);
    let two = ("x-amz-trailer", "x-amz-checksum-crc32, x-amz-checksum-crc32c");
    assert_eq!(refused(&[two], form), DigestError::SeveralChecksums);
    assert_eq!(refused(&[("x-amz-trailer", "x-amz-meta-a")], form), DigestError::UnknownTrailer);
    assert_eq!(refused(&[("x-amz-trailer", crc32.0)], PayloadForm::Unsigned), DigestError::TrailerWithoutForm);
    let unknown = refused(&[("x-amz-checksum-xxhash3", "AAAA")], form);
    assert_eq!(unknown.code(), Code::NotImplemented);
    assert!(unknown.to_string().contains("x-amz-checksum-xxhash3"));
    let sdk = |value| ("x-amz-sdk-checksum-algorithm", value);
    assert_eq!(refused(&[sdk("CRC32")], form), DigestError::SdkAlgorithmAlone);
    assert_eq!(refused(&[sdk("CRC99"), crc32], form), DigestError::BadSdkAlgorithm);
    assert_eq!(refused(&[sdk("CRC32C"), crc32], form), DigestError::BadSdkAlgorithm);
    plan(&[sdk("crc32"), crc32], form).unwrap();
    plan(&[sdk("CRC32"), ("x-amz-trailer", crc32.0)], form).unwrap();
    plan(&[("x-amz-checksum-mode", "ENABLED"), ("x-amz-checksum-type", "FULL_OBJECT")], form).unwrap();
}

#[test]
fn a_whole_upload() {
    let form = PayloadForm::StreamingSignedTrailer;
    let (mut map, chain) = begin(form, FOX.len() as u64);
    map.insert("x-amz-trailer", HeaderValue::from_static("x-amz-checksum-crc32"));
    let upload = |value: &str| {
        let wire = encode(form, chain.clone(), FOX, &[20], &[("x-amz-checksum-crc32", value)]);
        let (payload, trailers) = decode(cut(&wire, &[17]), &map, form, chain.clone()).unwrap();
        let mut digests = DigestPlan::read(&map, &form, Want::default()).unwrap().digests();
        digests.update(&payload);
        digests.finish(&trailers).map_err(|error| error.code())
    };
    assert_eq!(upload(ANSWERS[0].1).unwrap().checksum.unwrap().base64(), ANSWERS[0].1);
    assert_eq!(upload("QU+jOA==").unwrap_err(), Code::BadDigest);
}
