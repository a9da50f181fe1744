//! The standard streams of a program: what cannot be written is remembered, and ends nothing.
//!
//! Why:        `println!` panics when the reader went away (`| head`) or the disk behind the stream is full: a server would lose
//!             a thread by it, a command would answer with the trace of a panic. The crates of the program put their own
//!             `println!`, `print!` and `eprintln!` in front of std's, which call this.
//! Invariants: O1 nothing here panics.
//!             O2 what is told by `out` and `error` reaches a terminal without control characters except newlines and tabs,
//!                whatever names a client has chosen: they could rewrite the screen.
//! Locking:    the lock of each stream, for one call.
//! Not here:   the server's log, the exit code.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::sync::OnceLock;

/// The first failure to write a result.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Prints a part of a result.
pub fn out(words: fmt::Arguments<'_>) {
    let stdout = io::stdout();
    let text = words.to_string();
    let text = if stdout.is_terminal() { safe(&text) } else { text.into() };
    note(stdout.lock().write_all(text.as_bytes()));
}

/// Prints something else, for people. Where nobody can be told, nobody is.
pub fn error(words: fmt::Arguments<'_>) {
    let stderr = io::stderr();
    let text = words.to_string();
    let text = if stderr.is_terminal() { safe(&text) } else { text.into() };
    let _ = stderr.lock().write_all(text.as_bytes());
}

/// Prints a part of a result exactly, for who stops when it fails.
pub fn exactly(bytes: &[u8]) -> io::Result<()> {
    io::stdout().lock().write_all(bytes)
}

/// Remembers that a result could not be written.
pub fn note(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = FAILED.set(error);
    }
}

/// Writes what is still in memory; the first failure of the process, if there was one. `BrokenPipe`: the reader had enough.
pub fn finish() -> Result<(), &'static io::Error> {
    note(io::stdout().lock().flush());
    FAILED.get().map_or(Ok(()), Err)
}

/// A name on a line of its own: as it is, or with escapes in the place of control characters, and backslashes doubled then.
pub fn shown(name: &str) -> Cow<'_, str> {
    if !name.contains(is_unsafe) {
        return name.into();
    }
    let mut text = String::with_capacity(name.len() + 16);
    for character in name.chars() {
        if character == '\\' { text.push_str("\\\\") } else { push(&mut text, character) }
    }
    text.into()
}

/// JSON text without characters that a terminal could obey. They stand inside of strings only, where an escape means the same.
pub fn safe_json(text: &str) -> Cow<'_, str> {
    if !text.contains(|character| character != '\n' && is_unsafe(character)) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' => out.push('\n'),
            // All of them have four digits.
            _ if is_unsafe(character) => drop(write!(out, "\\u{:04x}", u32::from(character))),
            _ => out.push(character),
        }
    }
    out.into()
}

/// Text of several lines for a terminal.
fn safe(text: &str) -> Cow<'_, str> {
    let stays = |character: char| matches!(character, '\n' | '\t');
    if !text.contains(|character| is_unsafe(character) && !stays(character)) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    text.chars().for_each(|character| if stays(character) { out.push(character) } else { push(&mut out, character) });
    out.into()
}

/// Control characters, and those that turn the direction of the text behind them.
pub fn is_unsafe(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn push(text: &mut String, character: char) {
    match character {
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        _ if !is_unsafe(character) => text.push(character),
        _ if character.is_ascii() => drop(write!(text, "\\x{:02x}", u32::from(character))),
        _ => drop(write!(text, "\\u{{{:x}}}", u32::from(character))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_write_on_the_screen() {
        assert_eq!(shown("a\\b/ä 名"), "a\\b/ä 名", "what is harmless stays");
        assert_eq!(shown("a\x1b[31m\\x\n\u{9b}2J\u{202e}"), "a\\x1b[31m\\\\x\\n\\u{9b}2J\\u{202e}");
        assert_eq!(safe("key\ta\x1b]0;x\x07\nb\r"), "key\ta\\x1b]0;x\\x07\nb\\r");
        let text = "{\n \"key\": \"a\u{9b}\u{7f}\u{202e}é\"\n}";
        assert_eq!(safe_json(text), "{\n \"key\": \"a\\u009b\\u007f\\u202eé\"\n}");
        assert_eq!(safe_json("{}\n"), "{}\n");
    }
}
