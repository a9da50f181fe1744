//! A browser's form and its policy, as arbitrary bytes.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::BodyExt as _;

use super::{NOW, Pieces, WirePieces};
use crate::form::{self, Form, FormError, PolicyDocument};

const BOUNDARY: &str = "bound";
const POLICY: &str = "{\"expiration\": \"2030-01-01T00:00:00Z\", \"conditions\": [{\"bucket\": \"b\"}, [\"starts-with\", \"$key\", \"u/\"], \
                      [\"eq\", \"$acl\", \"private\"], [\"content-length-range\", 0, \"10\"]]}";

/// A policy document, held against a form without fields.
pub fn form_policy(bytes: &[u8]) {
    let Ok(policy) = PolicyDocument::parse(bytes) else { return };
    let _ = policy.size();
    for bucket in ["", "b"] {
        let outcome = policy.check(&Form::default(), bucket, NOW);
        assert!(outcome.is_ok() || matches!(outcome, Err(FormError::AgainstPolicy(_))));
    }
}

/// The fields and the file of a form that comes in pieces of this size.
fn read(wire: &[u8], piece_bytes: usize) -> Result<(Form, Vec<u8>), String> {
    let pieces = Pieces(wire.chunks(piece_bytes).map(Bytes::copy_from_slice).collect());
    let work = pin!(async {
        let (form, mut file) =
            form::read(Box::new(WirePieces(pieces)), BOUNDARY).await.map_err(|error| error.to_string())?;
        let mut content = Vec::new();
        while let Some(frame) = file.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            content.extend_from_slice(frame.data_ref().expect("a file has no trailers"));
        }
        Ok((form, content))
    });
    match work.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => unreachable!("every piece is ready"),
    }
}

/// A form: a byte for the size of pieces, then what comes over the wire.
pub fn form_body(bytes: &[u8]) {
    let Some((piece, wire)) = bytes.split_first() else { return };
    let whole = read(wire, wire.len().max(1));
    let pieces = read(wire, usize::from(*piece) + 1);
    assert_eq!(whole.is_ok(), pieces.is_ok(), "pieces matter: {whole:?} and {pieces:?}");
    let (Ok((form, content)), Ok((same_form, same_content))) = (whole, pieces) else { return };
    assert!(form == same_form && content == same_content);
    let _ = form.headers();
    if let Some(Ok(policy)) = form.get("policy").map(PolicyDocument::decode) {
        let _ = policy.check(&form, "b", NOW);
    }
}

pub(super) fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let part = |head: &str, content: &str| {
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n")
    };
    let fields = part("name=\"key\"", "u/${filename}") + &part("name=acl", "private");
    let file = part("name=\"file\"; filename=\"a\\b/cat.jpg\"", "con\r\n--boun\r\ntent");
    let after = part("name=submit", "Upload");
    let whole = format!("\u{6}{fields}{file}--{BOUNDARY}--\r\n");
    let with_after = format!("\u{2}\r\n{fields}{file}{after}--{BOUNDARY}--");
    vec![
        ("form_policy", "every_condition", POLICY.as_bytes().to_vec()),
        ("form_body", "whole", whole.into_bytes()),
        ("form_body", "fields_after", with_after.into_bytes()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_understood() {
        for (target, name, bytes) in seeds() {
            match target {
                "form_policy" => {
                    form_policy(&bytes);
                    assert!(PolicyDocument::parse(&bytes).is_ok(), "{name}");
                }
                _ => {
                    form_body(&bytes);
                    assert!(read(&bytes[1..], 3).is_ok(), "{name}");
                }
            }
        }
    }
}
