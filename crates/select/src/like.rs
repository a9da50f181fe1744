//! `LIKE`: `%` matches any text, `_` one character, and in Ceph's dialect `[a-z]` one of a set.
//!
//! Invariants: K1 a match backtracks only to the last `%`, so it costs at most text length times pattern length.

use crate::error::{Error, Kind};

/// Maximum length of a pattern, in characters.
pub const PATTERN_CHARS_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq)]
enum Item {
    Any,
    One,
    Exactly(char),
    /// Ranges, and whether the set is negated.
    Of(Vec<(char, char)>, bool),
}

impl Item {
    /// Number of comparisons for one character.
    fn len(&self) -> usize {
        match self {
            Item::Any | Item::One | Item::Exactly(_) => 1,
            Item::Of(ranges, _) => 1 + ranges.len(),
        }
    }

    fn fits(&self, character: char) -> bool {
        match self {
            Item::Any | Item::One => true,
            Item::Exactly(wanted) => *wanted == character,
            Item::Of(ranges, negated) => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&character)) != *negated
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern(Vec<Item>);

impl Pattern {
    /// `classes`: `[` begins a set of characters.
    pub(crate) fn new(pattern: &str, escape: Option<char>, classes: bool) -> Result<Pattern, Error> {
        let invalid = |message: &str| Error::new(Kind::InvalidArguments, message);
        if pattern.chars().nth(PATTERN_CHARS_MAX).is_some() {
            return Err(invalid(&format!("A pattern of LIKE has more than {PATTERN_CHARS_MAX} characters")));
        }
        let mut items = Vec::new();
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            items.push(match character {
                _ if Some(character) == escape => {
                    Item::Exactly(characters.next().ok_or_else(|| invalid("A pattern of LIKE ends with its escape"))?)
                }
                '%' if items.last() == Some(&Item::Any) => continue,
                '%' => Item::Any,
                '_' => Item::One,
                '[' if classes && characters.as_str().contains(']') => class(&mut characters),
                other => Item::Exactly(other),
            });
        }
        Ok(Pattern(items))
    }

    /// Whether the whole text matches, and how many comparisons it took; gives up after more than `looks_max`.
    pub(crate) fn matches(&self, text: &str, looks_max: usize) -> (bool, usize) {
        let items = &self.0;
        let mut looked_at = 0;
        let (mut rest, mut at) = (text, 0);
        // Backtracking point: the text after the last `%`.
        let mut again: Option<(&str, usize)> = None;
        loop {
            let first = rest.chars().next();
            looked_at += items.get(at).map_or(1, Item::len);
            if looked_at > looks_max {
                return (false, looked_at);
            }
            match (items.get(at), first) {
                (Some(Item::Any), _) => {
                    again = Some((rest, at + 1));
                    at += 1;
                }
                (Some(item), Some(character)) if item.fits(character) => {
                    rest = &rest[character.len_utf8()..];
                    at += 1;
                }
                (None, None) => return (true, looked_at),
                _ => {
                    let Some((from, behind)) = again else { return (false, looked_at) };
                    let Some(skipped) = from.chars().next() else { return (false, looked_at) };
                    rest = &from[skipped.len_utf8()..];
                    at = behind;
                    again = Some((rest, behind));
                }
            }
        }
    }
}

/// Parses the rest of `[...]`.
fn class(characters: &mut std::str::Chars<'_>) -> Item {
    let mut ranges = Vec::new();
    let negated = characters.as_str().starts_with('^');
    if negated {
        characters.next();
    }
    while let Some(low) = characters.next().filter(|character| *character != ']') {
        let mut ahead = characters.clone();
        let high = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(high)) if high != ']' => {
                *characters = ahead;
                high
            }
            _ => low,
        };
        ranges.push((low, high));
    }
    Item::Of(ranges, negated)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(text: &str, pattern: &str, escape: Option<char>) -> bool {
        Pattern::new(pattern, escape, true).unwrap().matches(text, usize::MAX).0
    }

    #[test]
    fn patterns_match_whole_texts() {
        for (text, pattern) in [
            ("", ""),
            ("", "%"),
            ("abc", "abc"),
            ("abc", "a%"),
            ("abc", "%c"),
            ("abc", "_b_"),
            ("aXbXc", "a%b%c"),
            ("abab", "%ab"),
            ("é", "_"),
            ("xyz", "%y[y-z]"),
            ("xy-", "%[-a]"),
            ("xa", "x[^b-z]"),
            ("a]", "a]"),
        ] {
            assert!(like(text, pattern, None), "{text} {pattern}");
        }
        for (text, pattern) in
            [("", "_"), ("abc", "ab"), ("abc", "b%"), ("abc", "%b"), ("xyz", "%y[a-b]"), ("x", "[^x]")]
        {
            assert!(!like(text, pattern, None), "{text} {pattern}");
        }
        assert!(like("_ar", "%_ar", Some('%')) && !like("xar", "%_ar", Some('%')));
        assert!(like("aeio_x", "%aeio$_%", Some('$')) && !like("aeiox", "%aeio$_%", Some('$')));
        assert!(Pattern::new("a$", Some('$'), false).is_err());
        assert!(Pattern::new("[a]", None, false).unwrap().matches("[a]", 9).0);
        assert!(Pattern::new(&format!("[{}]", "a".repeat(PATTERN_CHARS_MAX)), None, true).is_err());
    }

    #[test]
    fn a_match_that_takes_long_is_given_up() {
        let pattern = Pattern::new(&format!("%{}b", "a".repeat(500)), None, true).unwrap();
        let text = "a".repeat(2000);
        let (matches, looked_at) = pattern.matches(&text, usize::MAX);
        assert!(!matches && looked_at > 500_000, "{looked_at}");
        assert_eq!(pattern.matches(&text, 1000), (false, 1001));
    }
}
