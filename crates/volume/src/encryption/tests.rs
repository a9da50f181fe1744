//! What goes in comes out, at any range; what was tampered with does not.

use bytes::Bytes;
use margay_env::Env;
use proptest::prelude::*;

use super::*;

fn encrypt(key: &DataKey, salt: u8, plain: &[u8], piece: usize) -> Vec<u8> {
    let mut encryptor = Encryptor::new(key, [salt; SALT_BYTES as usize]);
    let mut stored = Vec::new();
    let mut emit = |bytes: &[u8]| {
        stored.extend_from_slice(bytes);
        Ok::<_, EncryptionError>(())
    };
    for piece in plain.chunks(piece) {
        encryptor.push(piece, &mut emit).unwrap();
    }
    encryptor.finish(&mut emit).unwrap();
    assert_eq!(encryptor.taken(), plain.len() as u64);
    stored
}

fn read(object: &Encrypted, stored: &[u8], mut offset: u64, len: u64) -> Result<Vec<u8>, EncryptionError> {
    let end = offset + len;
    let mut plain = Vec::new();
    while offset < end {
        let bytes = object.read(offset, end - offset, &|at, len| {
            let range = at as usize..(at + len) as usize;
            stored.get(range).map(Bytes::copy_from_slice).ok_or(EncryptionError::InvalidRange)
        })?;
        assert!(!bytes.is_empty() && bytes.len() as u64 <= end - offset);
        offset += bytes.len() as u64;
        plain.extend_from_slice(&bytes);
    }
    Ok(plain)
}

fn bytes_of(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

const CHUNK: u64 = PLAIN_CHUNK_BYTES;

fn len_of_part() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), CHUNK - 1..=CHUNK + 1, 5 * CHUNK - 1..=5 * CHUNK + 1, 0..3 * CHUNK]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_range_of_any_parts_reads_back(
        lens in proptest::collection::vec(len_of_part(), 1..4),
        piece in 1_usize..200_000,
        places in proptest::collection::vec((0.0..1.0, 0.0..1.0), 1..8),
    ) {
        let key = DataKey::new([7; 32]);
        let (mut plain, mut stored) = (Vec::new(), Vec::new());
        for (salt, &len) in lens.iter().enumerate() {
            let part = bytes_of(len + salt as u64).split_off(salt);
            let encrypted = encrypt(&key, salt as u8, &part, piece);
            prop_assert_eq!(encrypted.len() as u64, encrypted_len(len));
            plain.extend(part);
            stored.extend(encrypted);
        }
        let object = Encrypted::new(key, &lens);
        for (one, other) in places {
            let at = |place: f64| (plain.len() as f64 * place) as usize;
            let (start, end) = (at(f64::min(one, other)), at(f64::max(one, other)));
            let got = read(&object, &stored, start as u64, (end - start) as u64).unwrap();
            prop_assert!(got == plain[start..end], "{}..{}", start, end);
        }
    }
}

#[test]
fn what_was_changed_cut_or_moved_does_not_decrypt() {
    let key = DataKey::new([7; 32]);
    let plain = bytes_of(3 * CHUNK + 10);
    let stored = encrypt(&key, 1, &plain, 1000);
    let whole = |stored: &[u8], len: u64| read(&Encrypted::new(key.clone(), &[len]), stored, 0, len);
    assert_eq!(whole(&stored, plain.len() as u64).unwrap(), plain);
    for at in [0, 31, 32, 40_000, 32 + CHUNK as usize, stored.len() - 1] {
        let mut changed = stored.clone();
        changed[at] ^= 1;
        assert!(matches!(whole(&changed, plain.len() as u64), Err(EncryptionError::Damaged(_))), "byte {at}");
    }
    let chunk = STORED_CHUNK;
    let mut swapped = stored.clone();
    swapped[32..32 + 2 * chunk].rotate_left(chunk);
    assert!(matches!(whole(&swapped, plain.len() as u64), Err(EncryptionError::Damaged(_))));
    // A whole number of chunks, as if the object had always been that short.
    assert!(matches!(whole(&stored[..32 + 2 * chunk], 2 * CHUNK), Err(EncryptionError::Damaged(_))));
    // The chunk at the same place of another part of the same upload.
    let other = encrypt(&key, 2, &bytes_of(3 * CHUNK + 10), 1000);
    let mut exchanged = stored.clone();
    exchanged[32..32 + chunk].copy_from_slice(&other[32..32 + chunk]);
    assert!(matches!(whole(&exchanged, plain.len() as u64), Err(EncryptionError::Damaged(_))));
    let wrong = Encrypted::new(DataKey::new([8; 32]), &[plain.len() as u64]);
    assert!(matches!(read(&wrong, &stored, 0, 1), Err(EncryptionError::Damaged(_))));
}

const STORED_CHUNK: usize = (CHUNK + TAG_BYTES) as usize;

#[test]
fn an_envelope_opens_with_its_key_only() {
    let random = Env::real().random;
    let (old, new) = (MasterKeys::new(&[[1; 32]]), MasterKeys::new(&[[2; 32], [1; 32]]));
    let key = DataKey::new([9; 32]);
    let (mine, other) = (CustomerKey::new([3; 32]), CustomerKey::new([4; 32]));

    let stored = Envelope::wrap(&key, &WrappingKey::Master, &old, &*random).unwrap().encode();
    assert_eq!(decode_protection(&stored).unwrap(), Protection::Master);
    let envelope = Envelope::decode(&stored).unwrap();
    assert_eq!(envelope.open(None, &old).unwrap().bytes(), key.bytes());
    assert_eq!(envelope.open(Some(&mine), &new).unwrap().bytes(), key.bytes(), "after a new key was added");
    assert!(matches!(envelope.open(None, &MasterKeys::new(&[[2; 32]])), Err(EncryptionError::NoMasterKey)));

    let stored = Envelope::wrap(&key, &WrappingKey::Customer(mine.clone()), &old, &*random).unwrap().encode();
    assert_eq!(decode_protection(&stored).unwrap(), Protection::Customer);
    let envelope = Envelope::decode(&stored).unwrap();
    assert_eq!(envelope.open(Some(&mine), &MasterKeys::default()).unwrap().bytes(), key.bytes());
    assert!(matches!(envelope.open(Some(&other), &old), Err(EncryptionError::WrongKey)));
    assert!(matches!(envelope.open(None, &old), Err(EncryptionError::KeyRequired)));

    assert!(matches!(
        Envelope::wrap(&key, &WrappingKey::Master, &MasterKeys::default(), &*random),
        Err(EncryptionError::NoMasterKey)
    ));
    let named = MasterKeys::new(&[[1; 32]]).with_named(&[("a".to_owned(), [5; 32]), ("b".to_owned(), [6; 32])]);
    let by = |name: &str| WrappingKey::Named(name.to_owned());
    let sealed = Envelope::wrap(&key, &by("b"), &named, &*random).unwrap().encode();
    assert_eq!(decode_protection(&sealed).unwrap(), Protection::Named("b".to_owned()));
    assert_eq!(Envelope::decode(&sealed).unwrap().open(None, &named).unwrap().bytes(), key.bytes());
    assert!(matches!(Envelope::wrap(&key, &by("c"), &named, &*random), Err(EncryptionError::NoNamedKey)));
    assert!(matches!(Envelope::decode(&sealed).unwrap().open(None, &old), Err(EncryptionError::NoMasterKey)));
    let swapped = [&sealed[..6], &[1, b'a'], &sealed[8..]].concat();
    assert!(Envelope::decode(&swapped).unwrap().open(None, &named).is_err(), "the name is covered");

    for cut in 0..stored.len() {
        assert!(Envelope::decode(&stored[..cut]).is_err(), "{cut} bytes");
    }
    let shown = format!("{key:?} {mine:?} {old:?} {envelope:?}");
    for secret in [9u8, 3, 1] {
        // Eight of a key's bytes: what is random in an envelope has two in a row often enough.
        assert!(!shown.contains(&format!("{:?}", [secret; 8]).replace(['[', ']'], "")), "{shown}");
    }
}

#[test]
fn a_hidden_md5_depends_on_the_key() {
    let (one, other) = (DataKey::new([1; 32]), DataKey::new([2; 32]));
    assert_eq!(one.hide([5; 16]), one.hide([5; 16]));
    assert_ne!(one.hide([5; 16]), other.hide([5; 16]));
    assert_ne!(one.hide([5; 16]), [5; 16]);
}
