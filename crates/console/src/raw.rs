//! Contents of objects as the browser shows or saves them.
//!
//! Why:        whoever can write an object decides what is in it and which type it claims. A page in it must not run with the
//!             origin of the console.
//! Invariants: W1 only types of the list below are shown; all others are saved.
//!             W2 what is shown has a policy that lets nothing run and nothing load, and is never sniffed.
//! Not here:   passing the request (`dispatch`).

use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_FRAME_OPTIONS};
use http::{HeaderMap, HeaderValue};

use crate::headers::{answer_headers, common, set};

/// How a content is given to the browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Saved,
    As(&'static str),
}

/// Types that a browser shows without running anything of them, and the names that objects without a type of their own have.
const TYPES: [(&str, &[&str]); 17] = [
    ("image/png", &["png"]),
    ("image/jpeg", &["jpg", "jpeg"]),
    ("image/gif", &["gif"]),
    ("image/webp", &["webp"]),
    ("image/avif", &["avif"]),
    ("image/bmp", &["bmp"]),
    ("image/x-icon", &["ico"]),
    ("image/svg+xml", &["svg"]),
    ("video/mp4", &["mp4", "m4v"]),
    ("video/webm", &["webm"]),
    ("video/ogg", &["ogv"]),
    ("video/quicktime", &["mov"]),
    ("audio/mpeg", &["mp3"]),
    ("audio/ogg", &["ogg", "oga"]),
    ("audio/wav", &["wav"]),
    ("audio/mp4", &["m4a"]),
    ("application/pdf", &["pdf"]),
];
const TEXT: &str = "text/plain; charset=utf-8";
const LETS_NOTHING: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox";
/// The browser's own viewer of PDF does not start in a sandbox; the type is fixed, so nothing else can come of it.
const LETS_PDF: &str = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'";

/// How to show an object when the page asks for `form`: `text`, `media` or anything else, which saves it.
pub fn shown(form: Option<&str>, claimed: &str, path: &str) -> Shown {
    match form {
        Some("text") => Shown::As(TEXT),
        Some("media") => {
            let claimed = claimed.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            let of_claim = TYPES.iter().find(|(kind, _)| *kind == claimed);
            let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
            let is_vague = matches!(claimed.as_str(), "" | "application/octet-stream" | "binary/octet-stream");
            let of_name = || TYPES.iter().find(|(_, endings)| is_vague && endings.contains(&ending.as_str()));
            of_claim.or_else(of_name).map_or(Shown::Saved, |(kind, _)| Shown::As(kind))
        }
        _ => Shown::Saved,
    }
}

/// Sets the headers of an answer with a content; `path` is the percent-encoded one that was asked for.
pub(crate) fn give(headers: &mut HeaderMap, form: Option<&str>, path: &str) {
    let claimed = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    answer_headers(headers);
    match shown(form, &claimed, path) {
        Shown::As(kind) => {
            set(headers, CONTENT_TYPE, kind);
            set(headers, CONTENT_DISPOSITION, "inline");
            set(headers, X_FRAME_OPTIONS, "SAMEORIGIN");
            set(headers, CONTENT_SECURITY_POLICY, if kind == "application/pdf" { LETS_PDF } else { LETS_NOTHING });
        }
        Shown::Saved => {
            set(headers, CONTENT_TYPE, "application/octet-stream");
            // The path is percent-encoded already, as this form of the name wants it.
            let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            let name = name.replace(['"', '\'', '*', '(', ')', ';', ','], "_");
            let value = HeaderValue::from_str(&format!("attachment; filename*=UTF-8''{name}"));
            headers.insert(CONTENT_DISPOSITION, value.unwrap_or(HeaderValue::from_static("attachment")));
        }
    }
    set(headers, CACHE_CONTROL, "private, no-store");
    common(headers);
}
