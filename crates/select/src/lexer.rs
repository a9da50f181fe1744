//! Splits an expression into tokens.
//!
//! Why:        words, numbers and quoted texts are recognized once, with their positions for messages.
//! Invariants: L1 tokens take no more memory than the expression's own bytes.
//! Not here:   which words are keywords (parser).

use crate::error::{Error, Kind};

/// Maximum size of an expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// An unquoted name or keyword.
    Word(String),
    /// In double quotes: a name, which some clients use for a text.
    Quoted(String),
    /// In single quotes: a text.
    Text(String),
    /// In backticks: a timestamp.
    Timestamp(String),
    Integer(i64),
    Float(f64),
    Symbol(&'static str),
    End,
}

/// Longer symbols first.
const SYMBOLS: [&str; 22] =
    ["!=", "<>", "<=", ">=", "||", "(", ")", ",", ".", "*", "+", "-", "/", "%", "^", "=", "<", ">", "[", "]", ";", ":"];

/// Tokens with their byte positions; the last one is `End`.
pub(crate) fn tokens(expression: &str) -> Result<Vec<(Token, usize)>, Error> {
    if expression.len() > EXPRESSION_BYTES_MAX {
        return Err(Error::new(Kind::ExpressionTooLong, "The SQL expression is longer than 256 KiB"));
    }
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(first) = expression[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let rest = &expression[at..];
        let (token, len) = match first {
            '\'' | '"' | '`' => quoted(rest, first, at)?,
            '0'..='9' => number(rest, at)?,
            '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => number(rest, at)?,
            _ if first == '_' || first.is_alphabetic() => {
                let len = rest.find(|next: char| next != '_' && !next.is_alphanumeric()).unwrap_or(rest.len());
                (Token::Word(rest[..len].to_owned()), len)
            }
            _ => symbol(rest, at)?,
        };
        all.push((token, at));
        at += len;
    }
    all.push((Token::End, at));
    Ok(all)
}

/// The text between quotes, in which a doubled quote stands for one.
fn quoted(rest: &str, quote: char, at: usize) -> Result<(Token, usize), Error> {
    let mut text = String::new();
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((index, character)) = characters.next() {
        if character != quote {
            text.push(character);
        } else if characters.next_if(|(_, next)| *next == quote).is_some() {
            text.push(quote);
        } else {
            let token = match quote {
                '\'' => Token::Text(text),
                '"' => Token::Quoted(text),
                _ => Token::Timestamp(text),
            };
            return Ok((token, index + 1));
        }
    }
    Err(Error::new(Kind::LexerLiteral, format!("The text that begins at byte {at} has no end")))
}

fn number(rest: &str, at: usize) -> Result<(Token, usize), Error> {
    let bytes = rest.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut len = digits(0);
    let mut whole = true;
    if bytes.get(len) == Some(&b'.') {
        whole = false;
        len += 1 + digits(len + 1);
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits((len + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            whole = false;
            len += 1 + sign + exponent;
        }
    }
    let text = &rest[..len];
    let wrong = || Error::new(Kind::LexerLiteral, format!("The number at byte {at} is out of range"));
    if whole {
        return Ok((Token::Integer(text.parse().map_err(|_| wrong())?), len));
    }
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(wrong)?;
    Ok((Token::Float(value), len))
}

fn symbol(rest: &str, at: usize) -> Result<(Token, usize), Error> {
    let found = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
    let Some(symbol) = found else {
        let character = rest.chars().next().unwrap_or(' ');
        let message = format!("The character {character:?} at byte {at} means nothing");
        return Err(Error::new(Kind::LexerCharacter, message));
    };
    Ok((Token::Symbol(symbol), symbol.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_numbers_and_symbols_are_told_apart() {
        let found = tokens("a_1>=.5 'it''s' \"q\"<>1e2").unwrap();
        let found: Vec<Token> = found.into_iter().map(|(token, _)| token).collect();
        let expected = [
            Token::Word("a_1".into()),
            Token::Symbol(">="),
            Token::Float(0.5),
            Token::Text("it's".into()),
            Token::Quoted("q".into()),
            Token::Symbol("<>"),
            Token::Float(100.0),
            Token::End,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_token_is_an_error() {
        for (text, kind) in [
            ("'a", Kind::LexerLiteral),
            ("99999999999999999999", Kind::LexerLiteral),
            ("1e999", Kind::LexerLiteral),
            ("a ? b", Kind::LexerCharacter),
        ] {
            assert_eq!(tokens(text).unwrap_err().kind, kind, "{text}");
        }
        assert_eq!(tokens(&" ".repeat(EXPRESSION_BYTES_MAX + 1)).unwrap_err().kind, Kind::ExpressionTooLong);
    }
}
