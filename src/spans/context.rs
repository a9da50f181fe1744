//! W3C Trace Context: what a client says of the trace that its request belongs to, and new ids.
//!
//! Invariants: X1 a header that is not exactly of the form is as good as absent: then the request begins a trace.
//!             X2 an id is never zero.
//! Not here:   which requests get a span (`spans`).

use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use margay_env::Env;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// Bytes of version 00 of the header.
const PARENT_BYTES: usize = 55;
/// A longer state is dropped, as the specification allows.
const STATE_BYTES_MAX: usize = 512;
/// Odd, so that each number is reached once.
const ID_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The span of the client that sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub is_sampled: bool,
    pub state: String,
}

impl Parent {
    /// Of a request's headers (X1).
    pub(super) fn of(headers: &HeaderMap) -> Option<Parent> {
        let mut all = headers.get_all(TRACEPARENT).iter();
        let (one, another) = (all.next()?, all.next());
        let (trace_id, span_id, flags) = parse(one.as_bytes()).filter(|_| another.is_none())?;
        Some(Parent { trace_id, span_id, is_sampled: flags & 1 == 1, state: state(headers) })
    }
}

fn state(headers: &HeaderMap) -> String {
    let parts: Option<Vec<&str>> = headers.get_all(TRACESTATE).iter().map(|part| part.to_str().ok()).collect();
    let state = parts.unwrap_or_default().join(",");
    if state.len() > STATE_BYTES_MAX { String::new() } else { state }
}

/// `00-TRACE-SPAN-FLAGS` in lower-case hexadecimal digits; later versions may have more behind it.
fn parse(text: &[u8]) -> Option<([u8; 16], [u8; 8], u8)> {
    let is_longer = match (text.len(), text.get(PARENT_BYTES)) {
        (PARENT_BYTES, _) => false,
        (_, Some(b'-')) => true,
        _ => return None,
    };
    let [version] = digits::<1>(text.get(..2)?)?;
    if version == 0xff || (version == 0 && is_longer) || [2, 35, 52].iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let (trace_id, span_id) = (digits::<16>(&text[3..35])?, digits::<8>(&text[36..52])?);
    let [flags] = digits::<1>(&text[53..55])?;
    (trace_id != [0; 16] && span_id != [0; 8]).then_some((trace_id, span_id, flags))
}

fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |one: u8| match one {
        b'0'..=b'9' => Some(one - b'0'),
        b'a'..=b'f' => Some(one - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes ids: no secrets, so no call of the operating system each.
#[derive(Debug)]
pub(super) struct Ids {
    next: AtomicU64,
    /// Keeps processes apart.
    own: u64,
}

impl Ids {
    pub(super) fn new(env: &Env) -> Ids {
        Ids { next: AtomicU64::new(env.random.next_u64()), own: env.random.next_u64() }
    }

    pub(super) fn span(&self) -> [u8; 8] {
        self.number().to_be_bytes()
    }

    pub(super) fn trace(&self) -> [u8; 16] {
        let (high, low) = (self.number() ^ self.own, self.number());
        ((u128::from(high) << 64) | u128::from(low)).to_be_bytes()
    }

    /// Mixed (splitmix64), since sampling takes the last bits for random; one to one, so none comes twice.
    fn number(&self) -> u64 {
        loop {
            let mut mixed = self.next.fetch_add(ID_STEP, Ordering::Relaxed);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            // X2.
            if mixed != 0 {
                return mixed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(lines: &[(&'static str, &str)]) -> Option<Parent> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        Parent::of(&headers)
    }

    #[test]
    fn a_parent_is_read_and_anything_else_is_none() {
        let parent = of(&[("traceparent", GOOD), ("tracestate", "a=1"), ("tracestate", "b=2")]).unwrap();
        assert_eq!(hex(&parent.trace_id), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((hex(&parent.span_id).as_str(), parent.is_sampled), ("b7ad6b7169203331", true));
        assert_eq!(parent.state, "a=1,b=2");
        assert!(!of(&[("traceparent", &format!("{}0", &GOOD[..54]))]).unwrap().is_sampled);
        // A later version may be longer.
        assert!(of(&[("traceparent", &format!("cc{}-more", &GOOD[2..]))]).is_some());
        for wrong in [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-more"),
            format!("cc{}more", &GOOD[2..]),
            format!("ff{}", &GOOD[2..]),
            GOOD.to_uppercase(),
            GOOD.replace('-', "_"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16)),
            format!("{}zz", &GOOD[..53]),
        ] {
            assert_eq!(of(&[("traceparent", &wrong)]), None, "{wrong}");
        }
        assert_eq!(of(&[("traceparent", GOOD), ("traceparent", GOOD)]), None);
        let long = "x".repeat(STATE_BYTES_MAX + 1);
        assert_eq!(of(&[("traceparent", GOOD), ("tracestate", &long)]).unwrap().state, "");
    }

    /// Every cut and every flipped bit of a header gives a parent or none, and no panic.
    #[test]
    fn changed_headers_do_not_panic() {
        for end in 0..GOOD.len() {
            assert_eq!(parse(&GOOD.as_bytes()[..end]), None);
        }
        for bit in 0..GOOD.len() * 8 {
            let mut text = GOOD.as_bytes().to_vec();
            text[bit / 8] ^= 1 << (bit % 8);
            let _ = parse(&text);
        }
    }

    #[test]
    fn ids_differ() {
        let ids = Ids::new(&Env::real());
        let all: std::collections::BTreeSet<[u8; 8]> = (0..1000).map(|_| ids.span()).collect();
        assert_eq!(all.len(), 1000);
        assert_ne!(ids.trace(), ids.trace());
    }
}
