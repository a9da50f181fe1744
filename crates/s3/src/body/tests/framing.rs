//! Decoding is the inverse of encoding, and clients' ways of ending a body are all understood.

use proptest::prelude::*;

use super::*;

const CRC: (&str, &str) = ("x-amz-checksum-crc32c", "sOO8/Q==");

fn trailers_of(form: PayloadForm) -> &'static [(&'static str, &'static str)] {
    if form.has_trailer() { &[CRC] } else { &[] }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_cut_of_any_chunks(
        payload in prop::collection::vec(any::<u8>(), 0..2000),
        chunks in prop::collection::vec(1usize..700, 1..5),
        cuts in prop::collection::vec(1usize..300, 1..6),
        form in prop::sample::select(&CHUNKED),
    ) {
        let (headers, chain) = begin(form, payload.len() as u64);
        let encoded = encode(form, chain.clone(), &payload, &chunks, trailers_of(form));
        let (decoded, trailers) = decode(cut(&encoded, &cuts), &headers, form, chain).unwrap();
        prop_assert_eq!(decoded, payload);
        prop_assert_eq!(trailers.get(CRC.0), form.has_trailer().then_some(CRC.1));
    }

    #[test]
    fn length_is_foretold(bytes in 0u64..5000, chunk in 1u64..2000, form in prop::sample::select(&CHUNKED)) {
        let payload = vec![b'x'; bytes as usize];
        let (_, chain) = begin(form, bytes);
        let encoded = encode(form, chain, &payload, &[chunk as usize], trailers_of(form));
        prop_assert_eq!(encoded.len() as u64, encoded_bytes(&form, bytes, chunk, trailers_of(form)));
    }

    #[test]
    fn identity_bodies(payload in prop::collection::vec(any::<u8>(), 0..500), size in 1usize..100) {
        let (headers, _) = begin(PayloadForm::Unsigned, payload.len() as u64);
        let (decoded, trailers) = decode(cut(&payload, &[size]), &headers, PayloadForm::Unsigned, None).unwrap();
        prop_assert_eq!(decoded, payload);
        prop_assert_eq!(trailers, Trailers::default());
    }
}

#[test]
fn published_length() {
    assert_eq!(encoded_bytes(&PayloadForm::StreamingSigned, 66_560, 65_536, &[]), 66_824);
}

#[test]
fn pieces_are_slices_of_what_arrived() {
    let form = PayloadForm::StreamingUnsignedTrailer;
    let (headers, _) = begin(form, 8);
    let wire = Bytes::from_static(b"8\r\nabcdefgh\r\n0\r\n\r\n");
    let mut decoder =
        Decoder::new(Pieces([wire.clone()].into()), &headers, &form, None, DecoderOptions::default()).unwrap();
    let piece = now(decoder.next()).unwrap().unwrap();
    assert_eq!(piece.as_ptr(), wire[3..].as_ptr());
}

#[test]
fn bytes_of_a_huge_chunk_pass_before_it_ends() {
    let form = PayloadForm::StreamingSigned;
    let size: u64 = 4 << 30;
    let (headers, chain) = begin(form, size);
    let head = format!("{size:x};chunk-signature={}\r\n", "0".repeat(64));
    let wire: VecDeque<Bytes> = [Bytes::from(head), Bytes::from(vec![1; 100]), Bytes::from(vec![2; 50])].into();
    let mut decoder = Decoder::new(Pieces(wire), &headers, &form, chain, DecoderOptions::default()).unwrap();
    assert_eq!(now(decoder.next()).unwrap().unwrap().len(), 100);
    assert_eq!(now(decoder.next()).unwrap().unwrap().len(), 50);
    let error = now(decoder.next()).unwrap_err();
    assert!(matches!(error, BodyError::Incomplete { announced: Some(4_294_967_296), received: 150 }), "{error:?}");
}

#[test]
fn endings_that_clients_write() {
    let form = PayloadForm::StreamingUnsignedTrailer;
    let (headers, _) = begin(form, 3);
    let name_and_value = format!("{}:{}", CRC.0, CRC.1);
    for ending in [
        format!("{name_and_value}\r\n\r\n"),
        format!("{name_and_value}\n\r\n\r\n"),
        format!("\r\n{name_and_value}\r\n\r\n"),
        format!("X-Amz-Checksum-CRC32C: {}\r\n", CRC.1),
    ] {
        let wire = format!("3\r\nabc\r\n0\r\n{ending}");
        for size in 1..wire.len() {
            let (payload, trailers) = decode(cut(wire.as_bytes(), &[size]), &headers, form, None).unwrap();
            assert_eq!((payload.as_slice(), trailers.get(CRC.0)), (&b"abc"[..], Some(CRC.1)));
        }
    }
    // Signed: the signature may be set apart by an empty line.
    let form = PayloadForm::StreamingSignedTrailer;
    let (headers, chain) = begin(form, 3);
    let wire = String::from_utf8(encode(form, chain.clone(), b"abc", &[3], &[CRC])).unwrap();
    let wire = wire.replace("==\r\nx-amz-trailer", "==\n\r\nx-amz-trailer");
    decode(cut(wire.as_bytes(), &[7]), &headers, form, chain).unwrap();
}

#[test]
fn a_content_encoding_loses_only_aws_chunked() {
    assert_eq!(stored_encoding("aws-chunked"), None);
    assert_eq!(stored_encoding("AWS-chunked, gzip").as_deref(), Some("gzip"));
    assert_eq!(stored_encoding("gzip,aws-chunked,br").as_deref(), Some("gzip,br"));
    assert_eq!(stored_encoding("aws-chunked, aws-chunked"), None);
    assert_eq!(stored_encoding(" "), None);
    assert_eq!(stored_encoding("deflate, gzip").as_deref(), Some("deflate, gzip"));
}
