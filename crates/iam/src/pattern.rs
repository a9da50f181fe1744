//! Text with wildcards and variables: `arn:aws:s3:::home/${aws:username}/*`.
//!
//! Why:        resources, actions and the values of conditions share one syntax.
//! Invariants: P1 the value of a variable is matched literally: a `*` in a user's name is not a wildcard.
//!             P2 a variable without a value makes the whole match unknown.
//! Not here:   which keys have values (`request`).

use std::borrow::Cow;

use crate::key::normal;
use crate::request::{Context, Lookup};
use crate::truth::Truth;

/// Maximum size of a pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 4096;

/// One element of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `*`: any text, including none.
    Any,
    /// `?`: one character.
    One,
    /// `${key}` or `${key, 'otherwise'}`.
    Variable {
        key: String,
        otherwise: Option<String>,
    },
}

/// A pattern as written in a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pieces: Vec<Piece>,
}

/// An element of a pattern whose variables have been replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Is(char),
    Any,
    One,
}

/// Which special syntax a pattern may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Syntax {
    pub wildcards: bool,
    /// Policies of version 2008-10-17 have no variables.
    pub variables: bool,
}

/// Whether case matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Exact,
    Ignored,
}

impl Pattern {
    /// Parses a pattern; the error says what is wrong with it.
    pub(crate) fn parse(text: &str, syntax: Syntax) -> Result<Pattern, &'static str> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err("a value is longer than 4096 bytes");
        }
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let mut used = character.len_utf8();
            let special = match character {
                '*' if syntax.wildcards => Some(Piece::Any),
                '?' if syntax.wildcards => Some(Piece::One),
                '$' if syntax.variables && rest.starts_with("${") => {
                    let end = rest.find('}').ok_or("a variable is not closed")?;
                    used = end + 1;
                    match variable(&rest[2..end])? {
                        Piece::Text(literal) => {
                            plain.push_str(&literal);
                            rest = &rest[used..];
                            continue;
                        }
                        piece => Some(piece),
                    }
                }
                _ => None,
            };
            match special {
                Some(piece) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    // Consecutive stars match the same as one, at a higher cost.
                    if piece != Piece::Any || pieces.last() != Some(&Piece::Any) {
                        pieces.push(piece);
                    }
                }
                None => plain.push(character),
            }
            rest = &rest[used..];
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Pattern { pieces })
    }

    /// Whether it has neither wildcards nor variables.
    pub(crate) fn is_fixed(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The text of a fixed pattern; otherwise the text before the first wildcard or variable.
    pub(crate) fn fixed_part(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }

    /// Whether a variable uses a key (in normal form) for which `fits` holds.
    pub(crate) fn asks_for(&self, fits: &dyn Fn(&str) -> bool) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Variable { key, .. } if fits(key)))
    }

    /// Whether `text` matches.
    pub(crate) fn matches(&self, text: &str, case: Case, context: &dyn Context) -> Truth {
        if let [Piece::Any] = self.pieces.as_slice() {
            return Truth::Yes;
        }
        if let [Piece::Text(own)] = self.pieces.as_slice()
            && case == Case::Exact
        {
            return (own == text).into();
        }
        let Some(tokens) = self.tokens(context) else { return Truth::Unknown };
        let fold = |character: char| if case == Case::Ignored { lower(character) } else { character };
        let tokens: Vec<Token> = tokens
            .into_iter()
            .map(|token| if let Token::Is(character) = token { Token::Is(fold(character)) } else { token })
            .collect();
        let text: Vec<char> = text.chars().map(fold).collect();
        glob(&tokens, &text).into()
    }

    /// The text of a pattern without wildcards; `None` when a variable has no value.
    pub(crate) fn text(&self, context: &dyn Context) -> Option<Cow<'_, str>> {
        if let [Piece::Text(text)] = self.pieces.as_slice() {
            return Some(Cow::Borrowed(text));
        }
        let text = |token| match token {
            Token::Is(character) => character,
            Token::Any => '*',
            Token::One => '?',
        };
        Some(Cow::Owned(self.tokens(context)?.into_iter().map(text).collect()))
    }

    fn tokens(&self, context: &dyn Context) -> Option<Vec<Token>> {
        let mut tokens = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => tokens.extend(text.chars().map(Token::Is)),
                Piece::Any => tokens.push(Token::Any),
                Piece::One => tokens.push(Token::One),
                Piece::Variable { key, otherwise } => {
                    let value = match context.lookup(key) {
                        Lookup::Values(values) if values.len() == 1 => values.into_iter().next(),
                        Lookup::Absent => otherwise.as_deref().map(Cow::Borrowed),
                        // With several values it is unclear which one is meant.
                        Lookup::Unknown | Lookup::Values(_) => None,
                    }?;
                    tokens.extend(value.chars().map(Token::Is));
                }
            }
        }
        Some(tokens)
    }
}

/// The text between `${` and `}`.
fn variable(inside: &str) -> Result<Piece, &'static str> {
    // The three characters that can only be written this way.
    if let "*" | "?" | "$" = inside {
        return Ok(Piece::Text(inside.to_owned()));
    }
    let (key, otherwise) = match inside.split_once(',') {
        None => (inside, None),
        Some((key, otherwise)) => {
            let quoted = otherwise.trim().strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
            (key, Some(quoted.ok_or("the default of a variable must stand in single quotes")?.to_owned()))
        }
    };
    let key = key.trim();
    if key.is_empty() || !key.contains(':') || key.contains(['$', '{', '*', '?']) {
        return Err("a variable must name a condition key");
    }
    Ok(Piece::Variable { key: normal(key), otherwise })
}

fn lower(character: char) -> char {
    let mut lower = character.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ => character,
    }
}

/// Matches with one backtracking point, the last star. Takes at most tokens times characters steps.
fn glob(tokens: &[Token], text: &[char]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match tokens.get(token) {
            Some(Token::Any) => {
                star = Some((token, at));
                token += 1;
            }
            Some(Token::One) => (token, at) = (token + 1, at + 1),
            Some(Token::Is(own)) if *own == text[at] => (token, at) = (token + 1, at + 1),
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    (token, at) = (after + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    tokens[token..].iter().all(|rest| *rest == Token::Any)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct User;

    impl Context for User {
        fn lookup(&self, key: &str) -> Lookup<'_> {
            match key {
                "aws:username" => Lookup::one("a*"),
                "aws:referer" => Lookup::Absent,
                _ => Lookup::Unknown,
            }
        }
    }

    const FULL: Syntax = Syntax { wildcards: true, variables: true };

    fn fits(pattern: &str, text: &str) -> Truth {
        Pattern::parse(pattern, FULL).unwrap().matches(text, Case::Exact, &User)
    }

    #[test]
    fn wildcards_and_variables() {
        for (pattern, text, fit) in [
            ("*", "", Truth::Yes),
            ("a*c", "abbc", Truth::Yes),
            ("a*c", "abbcd", Truth::No),
            ("a?c", "abc", Truth::Yes),
            ("a?c", "ac", Truth::No),
            ("?", "é", Truth::Yes),
            ("a**", "a", Truth::Yes),
            ("home/${aws:username}/*", "home/a*/x", Truth::Yes),
            ("home/${aws:username}/*", "home/ab/x", Truth::No),
            ("home/${AWS:UserName}", "home/a*", Truth::Yes),
            ("${aws:Referer, 'none'}", "none", Truth::Yes),
            ("${aws:Referer}", "none", Truth::Unknown),
            ("${aws:Referer}", "", Truth::Unknown),
            ("${aws:nonsense, 'x'}", "x", Truth::Unknown),
            ("${*}${?}${$}", "*?$", Truth::Yes),
            ("${*}", "a", Truth::No),
        ] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
        for bad in ["${", "${aws:username", "${}", "${aws:username, none}", "${username}", "${a:${b:c}}"] {
            assert!(Pattern::parse(bad, FULL).is_err(), "{bad}");
        }
        let old = Syntax { wildcards: true, variables: false };
        assert_eq!(
            Pattern::parse("${aws:username}", old).unwrap().matches("${aws:username}", Case::Exact, &User),
            Truth::Yes
        );
        let ignoring = Pattern::parse("S3:Get*", FULL).unwrap();
        assert_eq!(ignoring.matches("s3:getobject", Case::Ignored, &User), Truth::Yes);
    }

    /// The definition of a match, regardless of cost.
    fn simple(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), None) => simple(rest, text),
            (Some(('*', rest)), Some((_, tail))) => simple(rest, text) || simple(pattern, tail),
            (Some(('?', rest)), Some((_, tail))) => simple(rest, tail),
            (Some((own, rest)), Some((first, tail))) => own == first && simple(rest, tail),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn globs_mean_what_they_say(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let expected = simple(&pattern.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>());
            prop_assert_eq!(fits(&pattern, &text), Truth::from(expected));
        }
    }
}
