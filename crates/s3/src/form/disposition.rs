//! The header of one part of a form: `Content-Disposition: form-data; name="key"; filename="cat.jpg"`.

use super::FormError;

/// Parsed header of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Disposition {
    pub name: String,
    /// Empty if absent.
    pub filename: String,
}

const NO_NAME: FormError = FormError::Malformed("a part has no Content-Disposition with a name");

/// Parses the header lines of a part, which are separated by CRLF.
pub(super) fn parse(head: &[u8]) -> Result<Disposition, FormError> {
    let head = std::str::from_utf8(head).map_err(|_| FormError::Malformed("the head of a part is not UTF-8"))?;
    let mut found = None;
    for line in head.split("\r\n").filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(FormError::Malformed("a header of a part has no colon"))?;
        if name.trim().eq_ignore_ascii_case("content-disposition") && found.replace(value).is_some() {
            return Err(FormError::Malformed("a part has two Content-Dispositions"));
        }
    }
    let (kind, mut rest) = found.ok_or(NO_NAME)?.split_once(';').ok_or(NO_NAME)?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return Err(NO_NAME);
    }
    let (mut name, mut filename) = (None, None);
    while !rest.trim().is_empty() {
        let (parameter, value, after) = parameter(rest)?;
        rest = after;
        let place = match parameter {
            "name" => &mut name,
            "filename" => &mut filename,
            _ => continue,
        };
        if place.replace(value).is_some() {
            return Err(FormError::Malformed("a parameter of a part is given twice"));
        }
    }
    Ok(Disposition {
        name: name.filter(|name| !name.is_empty()).ok_or(NO_NAME)?,
        filename: filename.unwrap_or_default(),
    })
}

/// The first `NAME=VALUE` or `NAME="VALUE"`, and the rest.
fn parameter(text: &str) -> Result<(&str, String, &str), FormError> {
    const MALFORMED: FormError = FormError::Malformed("a parameter of a part is not NAME=VALUE");
    let (name, rest) = text.split_once('=').ok_or(MALFORMED)?;
    let Some(quoted) = rest.trim_start().strip_prefix('"') else {
        let (value, after) = rest.split_once(';').unwrap_or((rest, ""));
        return Ok((name.trim(), value.trim().to_owned(), after));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let after = quoted[at + 1..].trim_start();
                let after = if after.is_empty() { after } else { after.strip_prefix(';').ok_or(MALFORMED)? };
                // Browsers escape the characters that would end the value.
                let value = value.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n");
                return Ok((name.trim(), value, after));
            }
            // Old browsers send paths with unescaped backslashes.
            '\\' if quoted[at + 1..].starts_with('"') => {
                characters.next();
                value.push('"');
            }
            other => value.push(other),
        }
    }
    Err(MALFORMED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &str) -> Option<(String, String)> {
        parse(head.as_bytes()).map(|found| (found.name, found.filename)).ok()
    }

    #[test]
    fn as_clients_write_it() {
        let pair = |name: &str, filename: &str| Some((name.to_owned(), filename.to_owned()));
        assert_eq!(of("Content-Disposition: form-data; name=\"key\""), pair("key", ""));
        assert_eq!(of("content-disposition:form-data;name=key"), pair("key", ""));
        assert_eq!(
            of("Content-Type: image/png\r\nContent-Disposition: form-data; name=\"file\"; filename=\"C:\\a b;c.png\""),
            pair("file", "C:\\a b;c.png")
        );
        assert_eq!(
            of("Content-Disposition: form-data; name=\"a\"; filename=\"\\\"q\\\" %22ü\""),
            pair("a", "\"q\" \"ü")
        );
        assert_eq!(
            of("Content-Disposition: form-data; name=\"file\"; filename*=UTF-8''x; filename=\"y\""),
            pair("file", "y")
        );
    }

    #[test]
    fn as_nobody_should() {
        for head in [
            "",
            "Content-Type: text/plain",
            "Content-Disposition: form-data",
            "Content-Disposition: attachment; name=\"key\"",
            "Content-Disposition: form-data; filename=\"x\"",
            "Content-Disposition: form-data; name=\"\"",
            "Content-Disposition: form-data; name=\"key",
            "Content-Disposition: form-data; name=\"key\" x",
            "Content-Disposition: form-data; name",
            "Content-Disposition: form-data; name=a; name=b",
            "Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b",
            "no colon",
        ] {
            assert_eq!(of(head), None, "{head}");
        }
        assert!(parse(b"Content-Disposition: form-data; name=\"\xff\"").is_err());
    }
}
