//! Keys sort as docs/format/keys.md says, and come back as they were made.

use super::*;

#[test]
fn uploads_sort_by_key_then_id() {
    let rows = [("a", "9"), ("a\0", "1"), ("a\0b", "1"), ("aa", "0")].map(|(key, id)| upload(Ino(1), key, id));
    assert!(rows.is_sorted());
    assert_eq!(parse_upload(&rows[2]).unwrap(), (Ino(1), "a\0b".to_owned(), "1"));
}

#[test]
fn newer_versions_sort_first() {
    assert!(version(Ino(1), "a", 2) < version(Ino(1), "a", 1));
    assert!(version(Ino(1), "a", 1) < version(Ino(1), "a\0", 9));
    assert_eq!(parse_version(&version(Ino(1), "a\0b/", 7)).unwrap(), (Ino(1), "a\0b/".to_owned(), 7));
}

#[test]
fn version_ranges_hold_one_key() {
    let holds = |(start, end): &Range, key: &Vec<u8>| start <= key && key < end;
    let row = |sequence| version(Ino(1), "a", sequence);
    for (below, from) in [(versions_below(Ino(1), "a", 5), versions_from(Ino(1), "a", 5))] {
        for sequence in [0, 4] {
            assert!(holds(&below, &row(sequence)) && !holds(&from, &row(sequence)));
        }
        for sequence in [5, 6, u64::MAX] {
            assert!(!holds(&below, &row(sequence)) && holds(&from, &row(sequence)));
        }
        for other in [version(Ino(1), "a\0", 9), version(Ino(1), "A", 0), version(Ino(2), "a", 4)] {
            assert!(!holds(&below, &other) && !holds(&from, &other));
        }
    }
    assert!(holds(&versions_from_key(Ino(1), b"a"), &row(0)) && !holds(&versions_from_key(Ino(1), b"a\0"), &row(9)));
}

#[test]
fn successor_skips_full_bytes() {
    assert_eq!(successor(b"a\xff\xff"), Some(b"b".to_vec()));
    assert_eq!(successor(b"\xff"), None);
    assert_eq!(successor(b""), None);
}

#[test]
fn events_of_before_sort_first_and_come_back() {
    let rows = [event_number(5, 0), event_number(5, 1), event_number(5, 300), event_number(6, 0), event_number(6, 2)];
    let keys = rows.map(|number| event("t", number));
    assert!(keys.is_sorted());
    for (key, number) in keys.iter().zip(rows) {
        assert_eq!(parse_event(key).unwrap(), ("t".to_owned(), number));
        assert!(events("t").0 <= *key && *key < events("t").1);
    }
    let zero = [&keys[0][..], &[0; 8]].concat();
    assert!(parse_event(&zero).is_err(), "the same number has one key");
}

proptest::proptest! {
    #[test]
    fn parsers_are_total(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..40)) {
        let _ = parse_bucket(&bytes);
        let _ = parse_entry(&bytes);
        let _ = parse_extent(&bytes);
        let _ = parse_upload(&bytes);
        let _ = parse_version(&bytes);
        let _ = parse_part(&bytes);
        let _ = parse_back(&bytes);
        let _ = parse_live(&bytes);
        let _ = parse_event(&bytes);
        let _ = parse_setting(&bytes);
        let _ = parse_document(&bytes);
    }

    #[test]
    fn escaped_keys_round_trip_in_order(left: String, right: String) {
        let (one, two) = (upload(Ino(7), &left, "x"), upload(Ino(7), &right, "x"));
        proptest::prop_assert_eq!(left.as_bytes().cmp(right.as_bytes()), one.cmp(&two));
        proptest::prop_assert_eq!(parse_upload(&one).unwrap(), (Ino(7), left, "x"));
    }
}
