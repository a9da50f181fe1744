//! Parses and validates the text of a setting.
//!
//! Why:      flags, environment and file all give text, so one function validates all three.
//! Not here: finding the text (`resolve`, `file`).

use super::table::{Kind, Setting};

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Not set (an empty path, an address that is `off`).
    Unset,
    Text(String),
    Number(u64),
    List(Vec<String>),
}

impl Value {
    /// The value for people; sizes with a unit if one divides them, URLs without passwords.
    pub fn show(&self, kind: Kind) -> String {
        match (self, kind) {
            (Value::Unset, Kind::AddressOrOff) => "off".to_owned(),
            (Value::Unset, _) => String::new(),
            (Value::Text(text), _) if text.starts_with("http") => without_password(text),
            (Value::Text(text), _) => text.clone(),
            (Value::Number(number), Kind::Bytes { .. }) => show_bytes(*number),
            (Value::Number(number), _) => number.to_string(),
            (Value::List(texts), _) => texts.iter().map(|text| without_password(text)).collect::<Vec<_>>().join(","),
        }
    }
}

/// `NAME=https://USER:PASSWORD@HOST` with stars for the password; other text unchanged.
fn without_password(text: &str) -> String {
    let Some((before, rest)) = text.split_once("://") else { return text.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        // A user without a password may be a token.
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{before}://{user}:***@{host}{path}"),
            None => format!("{before}://***@{host}{path}"),
        },
        None => text.to_owned(),
    }
}

const UNITS: [(&str, u64); 9] = [
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("b", 1),
];

/// `134217728` as `128MiB`.
pub fn show_bytes(bytes: u64) -> String {
    for (unit, size) in [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}

/// `128MiB` as `134217728`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, size) = UNITS
        .iter()
        .find_map(|(unit, size)| lower.strip_suffix(unit).map(|digits| (digits.trim_end(), *size)))
        .unwrap_or((lower.as_str(), 1));
    digits.parse::<u64>().ok()?.checked_mul(size)
}

/// Validates `text`; the error says what would have been right.
pub fn parse(setting: &Setting, text: &str) -> Result<Value, String> {
    let text = text.trim();
    match setting.kind {
        Kind::Path | Kind::Text if text.is_empty() => Ok(Value::Unset),
        Kind::Path | Kind::Text => Ok(Value::Text(text.to_owned())),
        Kind::AddressOrOff if text == "off" => Ok(Value::Unset),
        Kind::Address | Kind::AddressOrOff => address(text, setting.kind),
        Kind::List => {
            Ok(Value::List(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()))
        }
        Kind::Choice(choices) if choices.contains(&text) => Ok(Value::Text(text.to_owned())),
        Kind::Choice(choices) => Err(format!("{text:?} is none of: {}", choices.join(", "))),
        Kind::Bytes { min, max } => {
            let bytes =
                parse_bytes(text).ok_or_else(|| format!("{text:?} is no size; write 4096, 64KiB, 128MiB or 1GiB"))?;
            within(bytes, min, max, &show_bytes(min), &show_bytes(max))
        }
        Kind::Count { min, max } => number(text, min, max),
        Kind::Ratio => match text.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Value::Text(text.to_owned())),
            _ => Err(format!("{text:?} is no number from 0 to 1; write for example 0.1")),
        },
        Kind::Seconds { min, max } => number(text.strip_suffix('s').unwrap_or(text), min, max),
    }
}

fn address(text: &str, kind: Kind) -> Result<Value, String> {
    let right = match text.rsplit_once(':') {
        Some((host, port)) => !host.is_empty() && port.parse::<u16>().is_ok(),
        None => false,
    };
    if right {
        return Ok(Value::Text(text.to_owned()));
    }
    let off = if kind == Kind::AddressOrOff { ", or off" } else { "" };
    Err(format!("{text:?} is no address; write HOST:PORT, for example 127.0.0.1:9000 or [::]:9000{off}"))
}

fn number(text: &str, min: u64, max: u64) -> Result<Value, String> {
    let number = text.parse::<u64>().map_err(|_| format!("{text:?} is no whole number"))?;
    within(number, min, max, &min.to_string(), &max.to_string())
}

fn within(number: u64, min: u64, max: u64, min_text: &str, max_text: &str) -> Result<Value, String> {
    if (min..=max).contains(&number) {
        Ok(Value::Number(number))
    } else {
        Err(format!("it must lie between {min_text} and {max_text}"))
    }
}
