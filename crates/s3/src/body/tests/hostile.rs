//! Bodies that were cut, altered or made to hurt.

use proptest::prelude::*;

use super::*;
use crate::auth::Code;

const PAYLOAD: &[u8] = b"The quick brown fox jumps over the lazy dog";
const CRC: (&str, &str) = ("x-amz-checksum-crc32", "QU+jOQ==");

struct Sample {
    form: PayloadForm,
    headers: HeaderMap,
    chain: Option<ChunkChain>,
    wire: Vec<u8>,
}

fn sample(form: PayloadForm) -> Sample {
    let (headers, chain) = begin(form, PAYLOAD.len() as u64);
    let trailers: &[(&str, &str)] = if form.has_trailer() { &[CRC] } else { &[] };
    let wire = encode(form, chain.clone(), PAYLOAD, &[10, 1, 32], trailers);
    Sample { form, headers, chain, wire }
}

impl Sample {
    fn decode(&self, wire: &[u8], size: usize) -> Outcome {
        decode(cut(wire, &[size]), &self.headers, self.form, self.chain.clone())
    }
}

#[test]
fn truncated_anywhere() {
    for form in CHUNKED {
        let sample = sample(form);
        let whole = sample.decode(&sample.wire, 9).unwrap();
        for end in 0..sample.wire.len() {
            match sample.decode(&sample.wire[..end], 9) {
                // Only the empty line at the very end may be missing, or a trailer that `Digests` will ask for.
                Ok((payload, trailers)) => {
                    assert_eq!(payload, PAYLOAD);
                    let lacks_only_the_end = end + 2 >= sample.wire.len();
                    assert!(
                        lacks_only_the_end || (form == PayloadForm::StreamingUnsignedTrailer && trailers != whole.1)
                    );
                }
                Err((error, payload)) => {
                    assert!(PAYLOAD.starts_with(&payload));
                    assert!(matches!(error.code(), Code::IncompleteBody | Code::MalformedTrailerError), "{error}");
                }
            }
        }
    }
}

#[test]
fn one_byte_changed_anywhere_in_a_signed_body() {
    for form in [PayloadForm::StreamingSigned, PayloadForm::StreamingSignedTrailer] {
        let sample = sample(form);
        let whole = sample.decode(&sample.wire, 1000).unwrap();
        for place in 0..sample.wire.len() {
            for mask in [1, 0x20, 0x80] {
                let mut wire = sample.wire.clone();
                wire[place] ^= mask;
                match sample.decode(&wire, 1000) {
                    Ok(outcome) => assert_eq!(outcome, whole, "byte {place}"),
                    Err((_, payload)) => {
                        // Within one transport piece nothing of a false chunk passes.
                        assert!(PAYLOAD.starts_with(&payload), "byte {place}");
                    }
                }
            }
        }
    }
}

#[test]
fn chunks_cannot_be_dropped_swapped_or_replayed() {
    let form = PayloadForm::StreamingSigned;
    let (headers, chain) = begin(form, 30);
    let wire = encode(form, chain.clone(), &[b"a".repeat(10), b"b".repeat(10), b"c".repeat(10)].concat(), &[10], &[]);
    let one = (wire.len() - 86) / 3;
    let (a, rest) = wire.split_at(one);
    let (b, rest) = rest.split_at(one);
    let (c, last) = rest.split_at(one);
    let try_order = |parts: &[&[u8]]| decode(cut(&parts.concat(), &[13]), &headers, form, chain.clone());
    try_order(&[a, b, c, last]).unwrap();
    for parts in [[a, c, b, last], [a, a, b, last], [b, a, c, last]] {
        let (error, _) = try_order(&parts).unwrap_err();
        assert_eq!(error.code(), Code::SignatureDoesNotMatch);
    }
    let (error, _) = try_order(&[a, b, last]).unwrap_err();
    assert_eq!(error.code(), Code::SignatureDoesNotMatch);
    // Another request's chunks do not fit either.
    let stranger = begin(PayloadForm::StreamingSignedTrailer, 30).1;
    let (error, payload) = decode(cut(&wire, &[1000]), &headers, form, stranger).unwrap_err();
    assert_eq!((error.code(), payload.len()), (Code::SignatureDoesNotMatch, 0));
}

#[test]
fn unverified_chunks_are_only_unwrapped() {
    let sample = sample(PayloadForm::StreamingSignedTrailer);
    let wire = String::from_utf8(sample.wire).unwrap().replace("fox", "cat").replace("signature=", "signature=0");
    let wire = wire.replace("signature=0", "signature=");
    let options = DecoderOptions { chunk_verification: false };
    let body = || cut(wire.as_bytes(), &[11]);
    let (payload, trailers) = decode_with(body(), &sample.headers, sample.form, sample.chain.clone(), options).unwrap();
    assert!(payload.starts_with(b"The quick brown cat"));
    assert_eq!(trailers.get(CRC.0), Some(CRC.1));
    let (error, _) = decode(body(), &sample.headers, sample.form, sample.chain).unwrap_err();
    assert_eq!(error.code(), Code::SignatureDoesNotMatch);
}

/// An unsigned body that announces `announced` bytes.
fn unsigned(announced: &str, wire: &[u8]) -> Result<usize, Code> {
    let form = PayloadForm::StreamingUnsignedTrailer;
    let (mut headers, _) = begin(form, 0);
    headers.insert("x-amz-decoded-content-length", HeaderValue::from_str(announced).unwrap());
    let outcome = decode(cut(wire, &[5]), &headers, form, None);
    outcome.map(|(payload, _)| payload.len()).map_err(|(error, _)| error.code())
}

#[test]
fn sizes_and_lies() {
    assert_eq!(unsigned("0", b"0\r\n\r\n"), Ok(0));
    assert_eq!(unsigned("3", b"1\r\na\r\n1\r\nb\r\n0001\r\nc\r\n000\r\n\r\n"), Ok(3));
    assert_eq!(unsigned("10", b"A;x=y\r\n0123456789\r\n0;z\r\n\r\n"), Ok(10));
    assert_eq!(unsigned("4", b"3\r\nabc\r\n0\r\n\r\n"), Err(Code::IncompleteBody));
    assert_eq!(unsigned("2", b"3\r\nabc\r\n0\r\n\r\n"), Err(Code::IncompleteBody));
    assert_eq!(unsigned("4", b"2\r\nab\r\n3\r\nabc\r\n0\r\n\r\n"), Err(Code::IncompleteBody));
    assert_eq!(unsigned("99", b"ffffffffffffffff\r\nabc"), Err(Code::IncompleteBody));
    assert_eq!(unsigned("18446744073709551615", b"ffffffffffffffff\r\nabc"), Err(Code::IncompleteBody));
    assert_eq!(unsigned("5000000000", b"100000000\r\nabc"), Err(Code::IncompleteBody));
    for bad in [
        &b"\r\n"[..],
        b"g\r\n",
        b"-1\r\n",
        b"+1\r\na",
        b"0x1\r\na",
        b"10000000000000000\r\n",
        b"1\na\r\n0\r\n\r\n",
        b"1\r\nab\r\n0\r\n\r\n",
        b"1\r\na0\r\n\r\n",
        b"1\r\na\n\r0\r\n\r\n",
    ] {
        assert_eq!(unsigned("1", bad), Err(Code::InvalidRequest), "{}", bad.escape_ascii());
    }
    for bad in ["", "-1", "+1", "1 1", "a", "99999999999999999999"] {
        assert_eq!(unsigned(bad, b"0\r\n\r\n"), Err(Code::InvalidArgument), "{bad}");
    }
    let form = PayloadForm::StreamingUnsignedTrailer;
    let (mut twice, _) = begin(form, 0);
    twice.append("x-amz-decoded-content-length", HeaderValue::from_static("0"));
    let (error, _) = decode(cut(b"0\r\n\r\n", &[9]), &twice, form, None).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let (error, _) = decode(cut(b"0\r\n\r\n", &[9]), &HeaderMap::new(), form, None).unwrap_err();
    assert_eq!(error.code(), Code::MissingContentLength);

    let (headers, _) = begin(PayloadForm::Unsigned, 3);
    let identity = |bytes: &[u8]| decode(cut(bytes, &[2]), &headers, PayloadForm::Unsigned, None);
    assert!(matches!(identity(b"abcd").unwrap_err(), (BodyError::TooLong { announced: 3 }, _)));
    assert!(matches!(identity(b"ab").unwrap_err(), (BodyError::Incomplete { received: 2, .. }, _)));
    let no_length = HeaderMap::new();
    assert_eq!(decode(cut(b"abc", &[2]), &no_length, PayloadForm::Unsigned, None).unwrap().0, b"abc");
}

#[test]
fn a_broken_connection_is_an_incomplete_body_and_a_silent_client_a_timeout() {
    struct Broken(std::io::ErrorKind);
    impl Body for Broken {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            Poll::Ready(Some(Err(self.0.into())))
        }
    }
    for (kind, code) in [
        (std::io::ErrorKind::ConnectionReset, Code::IncompleteBody),
        (std::io::ErrorKind::TimedOut, Code::RequestTimeout),
    ] {
        let (headers, options) = (HeaderMap::new(), DecoderOptions::default());
        let mut decoder = Decoder::new(Broken(kind), &headers, &PayloadForm::Unsigned, None, options).unwrap();
        let error = now(decoder.next()).unwrap_err();
        assert!(matches!(error, BodyError::Transport(_)));
        assert_eq!(error.code(), code);
        assert!(decoder.finish().is_err());
    }
}

#[test]
fn limits_hold() {
    let chunk_line = |bytes: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(bytes - 4));
    assert_eq!(unsigned("1", chunk_line(CHUNK_HEADER_BYTES_MAX - 1).as_bytes()), Ok(1));
    assert_eq!(unsigned("1", chunk_line(CHUNK_HEADER_BYTES_MAX + 1).as_bytes()), Err(Code::InvalidRequest));
    assert_eq!(unsigned("1", "1".repeat(100_000).as_bytes()), Err(Code::InvalidRequest));

    let trailer = |line: &str, count: usize| {
        let lines: String = (0..count).map(|index| line.replace('#', &index.to_string())).collect();
        unsigned("0", format!("0\r\n{lines}\r\n").as_bytes())
    };
    assert_eq!(trailer("x-#:y\r\n", TRAILERS_MAX), Ok(0));
    assert_eq!(trailer("x-#:y\r\n", TRAILERS_MAX + 1), Err(Code::MalformedTrailerError));
    assert_eq!(trailer("\r\n", TRAILER_BYTES_MAX), Err(Code::MalformedTrailerError));
    assert_eq!(trailer(&format!("x:{}\r\n", "y".repeat(TRAILER_BYTES_MAX - 10)), 1), Ok(0));
    assert_eq!(trailer(&format!("x:{}\r\n", "y".repeat(TRAILER_BYTES_MAX)), 1), Err(Code::MalformedTrailerError));
    assert_eq!(trailer("x:1\r\n", 2), Err(Code::MalformedTrailerError));
    assert_eq!(trailer("no colon\r\n", 1), Err(Code::MalformedTrailerError));
    assert_eq!(trailer("x:\u{e9}\r\n", 1), Err(Code::MalformedTrailerError));
    assert_eq!(trailer("x-amz-trailer-signature:zz\r\n", 1), Err(Code::MalformedTrailerError));
}

#[test]
fn signed_forms_need_their_signatures() {
    let (headers, chain) = begin(PayloadForm::StreamingSigned, 1);
    let signed = |wire: &[u8]| {
        let outcome = decode(cut(wire, &[50]), &headers, PayloadForm::StreamingSigned, chain.clone());
        outcome.unwrap_err().0.code()
    };
    assert_eq!(signed(b"1\r\na\r\n0\r\n\r\n"), Code::InvalidRequest);
    assert_eq!(signed(b"1;chunk-signature=12\r\na\r\n0\r\n\r\n"), Code::InvalidRequest);
    let zeros = "0".repeat(64);
    assert_eq!(signed(format!("1;chunk-signature={zeros}\r\na").as_bytes()), Code::SignatureDoesNotMatch);
    let twice = format!("1;chunk-signature={zeros};chunk-signature={zeros}\r\na");
    assert_eq!(signed(twice.as_bytes()), Code::InvalidRequest);

    // Nothing may follow a body without a trailer, and a signed trailer needs its signature and nothing after it.
    let sample_plain = sample(PayloadForm::StreamingSigned);
    let more = [&sample_plain.wire[..], b"x:y\r\n"].concat();
    assert_eq!(sample_plain.decode(&more, 9).unwrap_err().0.code(), Code::InvalidRequest);
    let sample = sample(PayloadForm::StreamingSignedTrailer);
    let wire = String::from_utf8(sample.wire.clone()).unwrap();
    let refused = |wire: &str| sample.decode(wire.as_bytes(), 9).unwrap_err().0.code();
    let cut_at = wire.find("x-amz-trailer-signature").unwrap();
    assert_eq!(refused(&wire[..cut_at]), Code::MalformedTrailerError);
    assert_eq!(refused(&format!("{wire}x:y\r\n")), Code::MalformedTrailerError);
    assert_eq!(refused(&wire.replace(CRC.1, "QU+jOA==")), Code::SignatureDoesNotMatch);
    assert_eq!(refused(&wire.replace("crc32:", "crc32c:")), Code::SignatureDoesNotMatch);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_never_panic(
        wire in prop::collection::vec(prop::sample::select(b"0123af\r\n;:=x-amz\xff\0".to_vec()), 0..200),
        size in 1usize..50,
        announced in 0u64..50,
        form in prop::sample::select(&CHUNKED),
    ) {
        let (headers, chain) = begin(form, announced);
        if let Ok((payload, _)) = decode(cut(&wire, &[size]), &headers, form, chain) {
            prop_assert_eq!(payload.len() as u64, announced);
            prop_assert!(!form.has_signed_chunks());
        }
    }
}
