//! Walks an XML document element by element: requests here, answers in margay-client.
//!
//! Why:        a list of 10,000 parts needs no tree, and a hostile document must cost no more than its size.
//! Invariants: X1 no DTD and no entity except XML's five is expanded; depth and attributes are bounded.
//! Not here:   the limit on the document's size (`payload`), the meaning of elements (op).

use std::fmt::Display;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// Why a document was refused.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl Malformed {
    pub fn because(reason: impl Display) -> Malformed {
        Malformed(reason.to_string())
    }
}

/// Maximum nesting of elements.
pub const XML_DEPTH_MAX: usize = 8;

/// Walks a document. `leave` is called at the end of every element with the names from the root to it, joined by `/`
/// and without namespace prefixes, and its direct text.
pub fn walk(document: &[u8], leave: &mut dyn FnMut(&str, &str) -> Result<(), Malformed>) -> Result<(), Malformed> {
    let text = std::str::from_utf8(document).map_err(|_| Malformed::because("not UTF-8"))?;
    // Other control characters are equally invalid, but the response can represent a key with one as a reference.
    if text.contains('\0') {
        return Err(Malformed::because("a NUL character"));
    }
    let mut reader = Reader::from_str(text);
    let mut path = String::new();
    // One per open element.
    let mut texts: Vec<String> = Vec::with_capacity(XML_DEPTH_MAX);
    let mut roots = 0;
    loop {
        match reader.read_event().map_err(Malformed::because)? {
            Event::Start(start) => {
                roots += usize::from(texts.is_empty());
                enter(&start, &mut path, &mut texts)?;
            }
            Event::Empty(start) => {
                roots += usize::from(texts.is_empty());
                enter(&start, &mut path, &mut texts)?;
                exit(&mut path, &mut texts, leave)?;
            }
            Event::End(_) => exit(&mut path, &mut texts, leave)?,
            Event::Text(part) => append(&mut texts, &part.decode().map_err(Malformed::because)?)?,
            Event::CData(part) => append(&mut texts, &part.decode().map_err(Malformed::because)?)?,
            Event::GeneralRef(reference) => append(&mut texts, &resolve(&reference)?)?,
            Event::DocType(_) => return Err(Malformed::because("a document type is not allowed")),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => break,
        }
        if roots > 1 {
            return Err(Malformed::because("more than one root element"));
        }
    }
    if roots == 1 && texts.is_empty() { Ok(()) } else { Err(Malformed::because("the document is cut off")) }
}

fn enter(start: &BytesStart<'_>, path: &mut String, texts: &mut Vec<String>) -> Result<(), Malformed> {
    if texts.len() == XML_DEPTH_MAX {
        return Err(Malformed::because("nested too deep"));
    }
    let name = start.local_name();
    let name = std::str::from_utf8(name.as_ref()).map_err(Malformed::because)?;
    if name.is_empty() || name.contains('/') {
        return Err(Malformed::because("an element without a proper name"));
    }
    if !path.is_empty() {
        path.push('/');
    }
    path.push_str(name);
    texts.push(String::new());
    Ok(())
}

fn exit(
    path: &mut String,
    texts: &mut Vec<String>,
    leave: &mut dyn FnMut(&str, &str) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let text = texts.pop().ok_or_else(|| Malformed::because("an end without a start"))?;
    leave(path, &text)?;
    path.truncate(path.rfind('/').unwrap_or(0));
    Ok(())
}

fn append(texts: &mut [String], text: &str) -> Result<(), Malformed> {
    match texts.last_mut() {
        Some(current) => current.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err(Malformed::because("text outside the root element")),
    }
    Ok(())
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, Malformed> {
    if let Some(character) = reference.resolve_char_ref().map_err(Malformed::because)? {
        return Ok(character.to_string());
    }
    let name = reference.decode().map_err(Malformed::because)?;
    resolve_predefined_entity(&name).map(str::to_owned).ok_or_else(|| Malformed::because("entities cannot be declared"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(document: &str) -> Result<Vec<(String, String)>, Malformed> {
        let mut seen = Vec::new();
        walk(document.as_bytes(), &mut |path, text| {
            seen.push((path.to_owned(), text.to_owned()));
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn elements_are_left_with_their_text() {
        let document = "<?xml version=\"1.0\"?>\n<a xmlns:s=\"u\" x='>'><s:b>x &amp; y&#x41;</s:b><c/>\
                        <b><![CDATA[<&]]></b></a>\n";
        let expected = [("a/b", "x & yA"), ("a/c", ""), ("a/b", "<&"), ("a", "")];
        let expected: Vec<_> = expected.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
        assert_eq!(leaves(document).unwrap(), expected);
    }

    #[test]
    fn hostile_documents_are_refused() {
        let deep = "<a>".repeat(XML_DEPTH_MAX + 1);
        for document in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><b/>",
            "<a>&lol;</a>",
            "<!DOCTYPE a [<!ENTITY lol \"lol\">]><a>&lol;</a>",
            "<a>&#xFFFFFFFF;</a>",
            "<a>\0</a>",
            deep.as_str(),
        ] {
            assert!(leaves(document).is_err(), "{document}");
        }
        assert!(walk(b"<a>\xff</a>", &mut |_, _| Ok(())).is_err());
    }
}
