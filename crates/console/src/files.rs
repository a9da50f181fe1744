//! The page: its files, as they are in the repository.
//!
//! Why:        plain modules that a browser runs as they are need no build, and what is reviewed is what is served.
//! Invariants: F1 every file of `page/` is here (a test compares).
//!             F2 the policy lets the page run its own files only; it cannot be framed.
//! Not here:   the answers to its requests (`console`).

use std::io::Write;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, IF_NONE_MATCH, VARY,
    X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use margay_listener::answer;
use margay_listener::body::ResponseBody;
use ring::digest::{SHA256, digest};

use crate::headers::{common, set};

/// One file of the page.
#[derive(Debug)]
pub struct File {
    /// Below the console's path; the first page is at its root.
    pub name: &'static str,
    pub kind: &'static str,
    pub bytes: &'static [u8],
    packed: OnceLock<(Vec<u8>, String)>,
}

impl File {
    const fn new(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> File {
        File { name, kind, bytes, packed: OnceLock::new() }
    }

    /// Compressed, and the tag of the content.
    fn packed(&self) -> &(Vec<u8>, String) {
        self.packed.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            // Writing to memory does not fail; without the compressed bytes the plain ones are sent.
            let packed = encoder.write_all(self.bytes).and_then(|()| encoder.finish()).unwrap_or_default();
            let tag = base16ct::lower::encode_string(&digest(&SHA256, self.bytes).as_ref()[..16]);
            (packed, format!("\"{tag}\""))
        })
    }

    /// Bytes that a browser fetches for it.
    pub fn compressed_len(&self) -> usize {
        self.packed().0.len()
    }
}

const JS: &str = "text/javascript; charset=utf-8";
/// `trusted-types`: markup is parsed as data in one place, and no code can write any into the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self'; \
     connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types margay-xml";

macro_rules! files {
    ($($name:literal $kind:expr),* $(,)?) => {
        pub static FILES: [File; [$($name),*].len()] =
            [$(File::new($name, $kind, include_bytes!(concat!("../page/", $name)))),*];
    };
}

files! {
    "index.html" "text/html; charset=utf-8",
    "app.css" "text/css; charset=utf-8",
    "icon.svg" "image/svg+xml",
    "js/main.js" JS,
    "js/api.js" JS,
    "js/dom.js" JS,
    "js/format.js" JS,
    "js/dialog.js" JS,
    "js/signin.js" JS,
    "js/buckets.js" JS,
    "js/settings.js" JS,
    "js/editor.js" JS,
    "js/fields.js" JS,
    "js/forms.js" JS,
    "js/rights.js" JS,
    "js/listing.js" JS,
    "js/rows.js" JS,
    "js/browse.js" JS,
    "js/object.js" JS,
    "js/preview.js" JS,
    "js/upload.js" JS,
    "js/bulk.js" JS,
    "js/live.js" JS,
    "js/trace.js" JS,
    "js/upkeep.js" JS,
    "js/people.js" JS,
    "js/iam.js" JS,
    "js/identity.js" JS,
    "js/policy.js" JS,
    "js/providers.js" JS,
    "js/acl.js" JS,
    "js/existing.js" JS,
    "js/simulator.js" JS,
    "js/digest.js" JS,
}

/// The answer for a file below the console's path.
pub(crate) fn file(name: &str, headers: &HeaderMap) -> Response<ResponseBody> {
    let name = if name.is_empty() { "index.html" } else { name };
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        return answer::plain(StatusCode::NOT_FOUND, "the console has no such page");
    };
    let (packed, tag) = file.packed();
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let is_known = text(IF_NONE_MATCH).split(',').any(|known| known.trim().trim_start_matches("W/") == tag);
    let takes_gzip = text(ACCEPT_ENCODING).split(',').any(|coding| coding.trim().starts_with("gzip"));
    let mut response = match (is_known, takes_gzip && !packed.is_empty()) {
        (true, _) => answer::text(StatusCode::NOT_MODIFIED, file.kind, ""),
        (false, true) => answer::text(StatusCode::OK, file.kind, packed.as_slice()),
        (false, false) => answer::text(StatusCode::OK, file.kind, file.bytes),
    };
    let headers = response.headers_mut();
    if !is_known && takes_gzip && !packed.is_empty() {
        set(headers, CONTENT_ENCODING, "gzip");
    }
    headers.extend(HeaderValue::from_str(tag).ok().map(|tag| (ETAG, tag)));
    set(headers, VARY, "Accept-Encoding");
    set(headers, CACHE_CONTROL, "no-cache");
    set(headers, CONTENT_SECURITY_POLICY, POLICY);
    set(headers, X_FRAME_OPTIONS, "DENY");
    common(headers);
    response
}
