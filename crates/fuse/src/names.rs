//! Translates between a kernel's names, which are bytes, and the names that the tree stores.
//!
//! Why:        S3 allows keys that POSIX does not, and the other way round. Each name has exactly one form on either
//!                side, so a name that `ls` shows always leads back to the stored one.
//! Layout:     the table of docs/design/0005-posix-door.md.
//! Invariants: M1 `stored(shown(n)) == n` for every stored name that is not too long (`what_is_shown_leads_back`).
//!             M2 `shown(stored(b)) == b` for every byte name that is not refused and is no shortened long name
//!                (`what_is_made_is_shown_as_it_was_made`).
//! Not here:   finding a long name by its hash (volume).

use base16ct::lower;
use margay_volume::posix::{NAME_BYTES_MAX, Name, long_name_hash};

/// Bytes of a long name's prefix that are shown at most.
pub const LONG_PREFIX_BYTES_MAX: usize = 200;
/// Every escape begins with this.
const MARK: &str = "@{";
const BESIDE: &[u8] = b"@{file}";
/// `@{~`, sixteen digits, `}`.
const LONG_BYTES: usize = 20;

/// Why a byte name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    TooLong,
    /// An escape that stands for no name.
    Invalid,
}

/// The stored name that a byte name stands for.
pub fn stored(name: &[u8]) -> Result<Name, NameError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong);
    }
    // No kernel sends these.
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(NameError::Invalid);
    }
    if let Ok(text) = std::str::from_utf8(name)
        && !text.contains(MARK)
    {
        return Ok(Name::Plain(text.to_owned()));
    }
    let (rest, beside) = name.strip_suffix(BESIDE).map_or((name, false), |rest| (rest, true));
    if let Some((prefix, hash)) = long(rest) {
        return Ok(Name::Long { prefix: pieces(prefix)?, hash, beside });
    }
    whole(rest).map(if beside { Name::Beside } else { Name::Plain })
}

/// The prefix and hash of a shortened long name.
fn long(name: &[u8]) -> Option<(&[u8], u64)> {
    let (prefix, escape) = name.split_at_checked(name.len().checked_sub(LONG_BYTES)?)?;
    let digits = escape.strip_prefix(b"@{~")?.strip_suffix(b"}")?;
    if !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    Some((prefix, u64::from_str_radix(digits, 16).ok()?))
}

fn whole(name: &[u8]) -> Result<String, NameError> {
    match name {
        b"@{.}" => Ok(".".to_owned()),
        b"@{..}" => Ok("..".to_owned()),
        b"@{}" => Ok(String::new()),
        b"" | b"." | b".." => Err(NameError::Invalid),
        name => pieces(name),
    }
}

fn pieces(name: &[u8]) -> Result<String, NameError> {
    let mut out = String::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        let mut text = chunk.valid();
        while let Some(at) = text.find(MARK) {
            out.push_str(&text[..at]);
            let rest = &text[at..];
            if let Some(rest) = rest.strip_prefix("@{00}") {
                out.push('\0');
                text = rest;
            } else if let Some(rest) = rest.strip_prefix("@{@}{") {
                out.push_str(MARK);
                text = rest;
            } else {
                return Err(NameError::Invalid);
            }
        }
        out.push_str(text);
        for byte in chunk.invalid() {
            push_byte(&mut out, *byte);
        }
    }
    Ok(out)
}

fn push_byte(out: &mut String, byte: u8) {
    let mut digits = [0; 2];
    out.push_str("@{x");
    out.push_str(lower::encode_str(&[byte], &mut digits).expect("two digits fit"));
    out.push('}');
}

/// Appends the byte name of a stored name.
pub fn shown(name: &str, beside: bool, out: &mut Vec<u8>) {
    let begin = out.len();
    show_whole(name, out);
    if beside {
        out.extend_from_slice(BESIDE);
    }
    if out.len() - begin > NAME_BYTES_MAX {
        out.truncate(begin);
        show_long(name, out);
        if beside {
            out.extend_from_slice(BESIDE);
        }
    }
    assert!(out.len() - begin <= NAME_BYTES_MAX, "a kernel takes every name that is shown");
}

fn show_whole(name: &str, out: &mut Vec<u8>) {
    match name {
        "" => out.extend_from_slice(b"@{}"),
        "." => out.extend_from_slice(b"@{.}"),
        ".." => out.extend_from_slice(b"@{..}"),
        name => show_pieces(name, out),
    }
}

fn show_pieces(name: &str, out: &mut Vec<u8>) {
    if !name.contains(MARK) && !name.contains('\0') {
        out.extend_from_slice(name.as_bytes());
        return;
    }
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        if first == '\0' {
            out.extend_from_slice(b"@{00}");
            rest = &rest[1..];
        } else if rest.starts_with(MARK) {
            let run = byte_run(rest);
            // A byte that is not part of a UTF-8 character is written as itself, as it came in.
            if let Some(byte) = run.first()
                && run.utf8_chunks().next().is_some_and(|chunk| chunk.valid().is_empty())
            {
                out.push(*byte);
                rest = &rest["@{x00}".len()..];
            } else {
                out.extend_from_slice(b"@{@}{");
                rest = &rest[MARK.len()..];
            }
        } else {
            let (this, next) = rest.split_at(first.len_utf8());
            out.extend_from_slice(this.as_bytes());
            rest = next;
        }
    }
}

/// The bytes of the `@{x..}` escapes at the start of the text; up to four decide whether the first begins a character.
fn byte_run(text: &str) -> Vec<u8> {
    let mut run = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((escape, next)) = rest.split_at_checked("@{x00}".len()) {
        let Some(digits) = escape.strip_prefix(b"@{x").and_then(|rest| rest.strip_suffix(b"}")) else { break };
        let mut byte = [0];
        let Ok(byte) = lower::decode(digits, &mut byte) else { break };
        run.extend_from_slice(byte);
        if run.len() == 4 {
            break;
        }
        rest = next;
    }
    run
}

fn show_long(name: &str, out: &mut Vec<u8>) {
    let begin = out.len();
    let mut end = name.floor_char_boundary(LONG_PREFIX_BYTES_MAX);
    loop {
        show_pieces(&name[..end], out);
        if out.len() - begin <= LONG_PREFIX_BYTES_MAX {
            break;
        }
        out.truncate(begin);
        end = name.floor_char_boundary(end - 1);
    }
    out.extend_from_slice(format!("@{{~{:016x}}}", long_name_hash(name)).as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn show(name: &str, beside: bool) -> Vec<u8> {
        let mut out = Vec::new();
        shown(name, beside, &mut out);
        out
    }

    #[test]
    fn the_table() {
        for (stored_name, bytes) in [
            ("a", &b"a"[..]),
            ("", b"@{}"),
            (".", b"@{.}"),
            ("..", b"@{..}"),
            ("...", b"..."),
            ("a\0b", b"a@{00}b"),
            ("@{", b"@{@}{"),
            ("@{00}", b"@{@}{00}"),
            ("x@{xe9}y", b"x\xe9y"),
            ("@{xE9}", b"@{@}{xE9}"),
            ("@{x41}", b"@{@}{x41}"),
            ("@{xc3}@{xa9}", b"@{@}{xc3}\xa9"),
            ("@{file}", b"@{@}{file}"),
            ("@", b"@"),
        ] {
            assert_eq!(show(stored_name, false), bytes, "{stored_name:?}");
            assert_eq!(stored(bytes), Ok(Name::Plain(stored_name.to_owned())), "{stored_name:?}");
        }
        assert_eq!(show("a", true), b"a@{file}");
        assert_eq!(stored(b"a@{file}"), Ok(Name::Beside("a".to_owned())));
        assert_eq!(stored(b"@{}@{file}"), Ok(Name::Beside(String::new())));
    }

    #[test]
    fn an_escape_that_names_nothing_is_refused() {
        for name in
            ["@{foo}", "@{", "a@{.}", "@{file}", ".@{file}", "@{xe9}", "@{01}", "@{~12}", "@{~000000000000000G}"]
        {
            assert_eq!(stored(name.as_bytes()), Err(NameError::Invalid), "{name}");
        }
        assert_eq!(stored(&[b'a'; 256]), Err(NameError::TooLong));
        assert!(stored(&[b'a'; 255]).is_ok());
    }

    #[test]
    fn a_long_name_is_shown_by_its_beginning_and_hash() {
        for (name, beside) in [
            ("\u{e9}".repeat(300), false),
            ("@{".repeat(52), false),
            ("@{".repeat(150), true),
            ("a".repeat(256), false),
            ("a".repeat(250), true),
            ("a".repeat(300), true),
        ] {
            let bytes = show(&name, beside);
            assert!(bytes.len() <= NAME_BYTES_MAX);
            let Ok(Name::Long { prefix, hash, beside: found }) = stored(&bytes) else { panic!("{bytes:?}") };
            assert!(name.starts_with(&prefix) && !prefix.is_empty());
            assert_eq!((hash, found), (long_name_hash(&name), beside));
        }
    }

    /// Names made of the pieces of escapes.
    fn pieces_of_trouble() -> impl Strategy<Value = Vec<u8>> {
        let pieces: Vec<&'static [u8]> = vec![
            &b"@"[..],
            b"{",
            b"}",
            b"@{",
            b"@{x",
            b"e9}",
            b"@{xc3}",
            b"@{xa9}",
            b"@{xff}",
            b"@{00}",
            b"@{@}{",
            b"@{file}",
            b".",
            b"\xc3",
            b"\xa9",
            b"\xff",
            b"\xe2\x82",
            b"\xac",
            b"a",
        ];
        proptest::collection::vec(proptest::sample::select(pieces), 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn what_is_shown_leads_back(bytes in pieces_of_trouble(), zero in any::<bool>(), beside in any::<bool>()) {
            let mut name = String::from_utf8_lossy(&bytes).into_owned();
            if zero {
                name.push('\0');
            }
            let wanted = if beside { Name::Beside(name.clone()) } else { Name::Plain(name.clone()) };
            prop_assert_eq!(stored(&show(&name, beside)), Ok(wanted));
        }

        #[test]
        fn what_is_made_is_shown_as_it_was_made(bytes in prop_oneof![
            pieces_of_trouble(),
            proptest::collection::vec(any::<u8>(), 0..255),
        ]) {
            prop_assume!(!bytes.is_empty());
            match stored(&bytes) {
                Ok(Name::Plain(name)) => prop_assert_eq!(show(&name, false), bytes),
                Ok(Name::Beside(name)) => prop_assert_eq!(show(&name, true), bytes),
                Ok(Name::Long { .. }) | Err(_) => {}
            }
        }

        #[test]
        fn plain_names_are_never_refused(bytes in proptest::collection::vec(any::<u8>(), 1..255)) {
            prop_assume!(!bytes.windows(2).any(|pair| pair == b"@{"));
            prop_assume!(bytes != b"." && bytes != b".." && !bytes.contains(&0) && !bytes.contains(&b'/'));
            prop_assert!(matches!(stored(&bytes), Ok(Name::Plain(_))));
        }
    }
}
