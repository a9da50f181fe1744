//! Tokens and keys as an attacker would make them: each differs from an accepted one only in the attacked detail.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair,
};

use super::key_set::KeySet;
use super::provider_error::ProviderError;
use super::web_identity::{Provider, TOKEN_BYTES_MAX, check};

const NOW_SECONDS: i64 = 1500;
const CLAIMS: &str = r#"{"iss":"https://id","aud":"margay","sub":"Ann","exp":2000,"nbf":1000}"#;

/// A provider's key, or an attacker's.
struct Signer {
    pkcs8: Vec<u8>,
    pair: EcdsaKeyPair,
}

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap().as_ref().to_vec();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random).unwrap();
        Signer { pkcs8, pair }
    }

    fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn jwk(&self, kid: &str) -> String {
        let (x, y) = self.point()[1..].split_at(32);
        format!(r#"{{"kty":"EC","crv":"P-256","kid":"{kid}","x":"{}","y":"{}"}}"#, encoded(x), encoded(y))
    }

    fn signature(&self, signed: &str) -> Vec<u8> {
        self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec()
    }

    fn signature_as(&self, form: &'static EcdsaSigningAlgorithm, signed: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(form, &self.pkcs8, &random).unwrap();
        pair.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec()
    }

    fn token(&self, header: &str, claims: &str) -> String {
        let signed = signed_part(header, claims);
        let signature = self.signature(&signed);
        format!("{signed}.{}", encoded(&signature))
    }

    /// The verdict on a token by a provider with this key (id `e`) and an RSA key (id `r`).
    fn judge(&self, token: &str) -> Result<String, ProviderError> {
        let rsa = format!(r#"{{"kty":"RSA","kid":"r","n":"{}","e":"AQAB"}}"#, encoded(&[0x81; 256]));
        let keys = KeySet::parse(format!(r#"{{"keys":[{rsa},{}]}}"#, self.jwk("e")).as_bytes()).unwrap();
        let providers = [Provider::new("https://id", "margay", Arc::new(keys))];
        let mut outcome = pin!(check(&providers, token, NOW_SECONDS));
        match outcome.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome.map(|identified| identified.subject),
            Poll::Pending => unreachable!("the keys are at hand"),
        }
    }

    /// The verdict on a token with this header and a valid signature.
    fn judge_header(&self, header: &str) -> Result<String, ProviderError> {
        self.judge(&self.token(header, CLAIMS))
    }

    /// The verdict on a token with these claims and a valid signature.
    fn judge_claims(&self, claims: &str) -> Result<String, ProviderError> {
        self.judge(&self.token(r#"{"alg":"ES256","kid":"e"}"#, claims))
    }
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn signed_part(header: &str, claims: &str) -> String {
    format!("{}.{}", encoded(header.as_bytes()), encoded(claims.as_bytes()))
}

fn is_believed(outcome: Result<String, ProviderError>) {
    assert_eq!(outcome, Ok("Ann".to_owned()));
}

#[test]
fn a_token_without_a_signature_is_not_believed() {
    let signer = Signer::new();
    is_believed(signer.judge_header(r#"{"alg":"ES256","kid":"e"}"#));
    for none in ["none", "None", "NONE", "nOnE", ""] {
        let header = format!(r#"{{"alg":"{none}","kid":"e"}}"#);
        let unsigned = format!("{}.", signed_part(&header, CLAIMS));
        assert_eq!(signer.judge(&unsigned), Err(ProviderError::Form), "{none}");
        assert_eq!(signer.judge_header(&header), Err(ProviderError::Form), "{none}, signed nevertheless");
    }
    for header in [
        r#"{"kid":"e"}"#,
        r#"{"alg":null,"kid":"e"}"#,
        r#"{"alg":["ES256"],"kid":"e"}"#,
        r#"{"alg":5,"kid":"e"}"#,
        r#"{"alg":"none","alg":"ES256","kid":"e"}"#,
        r#"{"alg":"ES256","alg":"none","kid":"e"}"#,
        r#"["ES256"]"#,
    ] {
        assert_eq!(signer.judge_header(header), Err(ProviderError::Form), "{header}");
    }
}

#[test]
fn a_key_is_used_for_its_own_algorithm_only() {
    let signer = Signer::new();
    for (algorithm, hash) in
        [("HS256", ring::hmac::HMAC_SHA256), ("HS384", ring::hmac::HMAC_SHA384), ("HS512", ring::hmac::HMAC_SHA512)]
    {
        for (kid, secret) in
            [("e", signer.point().to_vec()), ("e", signer.jwk("e").into_bytes()), ("r", vec![0x81; 256])]
        {
            let signed = signed_part(&format!(r#"{{"alg":"{algorithm}","kid":"{kid}"}}"#), CLAIMS);
            let code = ring::hmac::sign(&ring::hmac::Key::new(hash, &secret), signed.as_bytes());
            let token = format!("{signed}.{}", encoded(code.as_ref()));
            assert_eq!(signer.judge(&token), Err(ProviderError::Key), "{algorithm}");
        }
    }
    for algorithm in ["ES384", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA"] {
        let header = format!(r#"{{"alg":"{algorithm}","kid":"e"}}"#);
        assert_eq!(signer.judge_header(&header), Err(ProviderError::Key), "{algorithm}");
    }
    // Algorithms that belong to the key with the other id, or to one without an id.
    assert_eq!(signer.judge_header(r#"{"alg":"ES256","kid":"r"}"#), Err(ProviderError::Key));
    assert_eq!(signer.judge_header(r#"{"alg":"RS256","kid":"r"}"#), Err(ProviderError::Signature));
    assert_eq!(signer.judge_header(r#"{"alg":"RS256"}"#), Err(ProviderError::Signature));
}

#[test]
fn a_header_does_not_choose_its_own_key() {
    let (signer, attacker) = (Signer::new(), Signer::new());
    is_believed(signer.judge_header(r#"{"alg":"ES256"}"#));
    for kid in ["x", "", "E", "../e", "e\\u0000"] {
        let header = format!(r#"{{"alg":"ES256","kid":"{kid}"}}"#);
        assert_eq!(signer.judge_header(&header), Err(ProviderError::Key), "{kid}");
    }
    for kid in ["5", r#"["e"]"#, r#"{"e":1}"#] {
        let header = format!(r#"{{"alg":"ES256","kid":{kid}}}"#);
        assert_eq!(signer.judge_header(&header), Err(ProviderError::Form), "{kid}");
    }
    let own = attacker.jwk("e");
    for more in [format!(r#""jwk":{own}"#), r#""jku":"https://evil/keys""#.to_owned(), r#""x5c":["AAAA"]"#.to_owned()] {
        let header = format!(r#"{{"alg":"ES256","kid":"e",{more}}}"#);
        assert_eq!(signer.judge(&attacker.token(&header, CLAIMS)), Err(ProviderError::Signature), "{more}");
        is_believed(signer.judge_header(&header));
    }
    for crit in [r#"["b64"]"#, "[]"] {
        let header = format!(r#"{{"alg":"ES256","kid":"e","b64":false,"crit":{crit}}}"#);
        assert_eq!(signer.judge_header(&header), Err(ProviderError::Form), "{crit}");
    }
}

#[test]
fn a_signature_is_of_these_claims_and_in_its_one_form() {
    let (signer, header) = (Signer::new(), r#"{"alg":"ES256","kid":"e"}"#);
    let signed = signed_part(header, CLAIMS);
    let judge = |signature: &[u8]| signer.judge(&format!("{signed}.{}", encoded(signature)));
    let good = signer.signature(&signed);
    is_believed(judge(&good));
    let of_others = signer.signature(&signed_part(header, &CLAIMS.replace("Ann", "Bob")));
    for signature in [
        Vec::new(),
        vec![0; 64],
        vec![0xff; 64],
        good[..63].to_vec(),
        [&good[..], &[0]].concat(),
        signer.signature_as(&ECDSA_P256_SHA256_ASN1_SIGNING, &signed),
        of_others,
    ] {
        assert_eq!(judge(&signature), Err(ProviderError::Signature), "{signature:?}");
    }
    let token = format!("{signed}.{}", encoded(&good));
    for (from, to) in [("", "="), ("", "."), ("", ".e30.e30"), ("", "\n"), ("", " ")] {
        assert_eq!(signer.judge(&format!("{from}{token}{to}")), Err(ProviderError::Form), "{to:?}");
    }
    assert_eq!(signer.judge(&format!("e30.{token}")), Err(ProviderError::Form));
}

#[test]
fn times_are_numbers_and_within_their_bounds() {
    let signer = Signer::new();
    let with = |times: &str| {
        let more = if times.is_empty() { String::new() } else { format!(",{times}") };
        signer.judge_claims(&format!(r#"{{"iss":"https://id","aud":"margay","sub":"Ann"{more}}}"#))
    };
    for times in
        [r#""exp":1441"#, r#""exp":1441.9"#, r#""exp":1e308"#, r#""exp":9e18,"nbf":-1e308"#, r#""exp":2000,"nbf":null"#]
    {
        is_believed(with(times));
    }
    for times in [r#""exp":1440"#, r#""exp":0"#, r#""exp":-1"#, r#""exp":-1e308"#, r#""exp":1.5"#] {
        assert_eq!(with(times), Err(ProviderError::Expired), "{times}");
    }
    for times in [r#""exp":2000,"nbf":1561"#, r#""exp":2000,"nbf":1e308"#] {
        assert_eq!(with(times), Err(ProviderError::NotYet), "{times}");
    }
    for times in [
        "",
        r#""exp":null"#,
        r#""exp":"2000""#,
        r#""exp":true"#,
        r#""exp":[2000]"#,
        r#""exp":2000,"exp":3000"#,
        r#""exp":1e999"#,
        r#""exp":2000,"nbf":"9999999999""#,
        r#""exp":2000,"nbf":[9999999999]"#,
        r#""exp":2000,"nbf":true"#,
    ] {
        assert_eq!(with(times), Err(ProviderError::Form), "{times}");
    }
}

#[test]
fn claims_of_another_shape_are_refused() {
    let signer = Signer::new();
    for claims in ["", "null", "[]", "5", "\"x\"", "{", r#"{"iss":5}"#, r#"{"iss":["https://id"]}"#, "\u{0}"] {
        assert_eq!(signer.judge_claims(claims), Err(ProviderError::Form), "{claims}");
    }
    assert_eq!(signer.judge_claims(&CLAIMS.replace("https://id", "https://other")), Err(ProviderError::Issuer));
    for audience in [r#""else""#, r#"["else"]"#, "[]", "null", r#"{"margay":1}"#, r#"[["margay"]]"#] {
        let claims = CLAIMS.replace(r#""margay""#, audience);
        assert_eq!(signer.judge_claims(&claims), Err(ProviderError::Audience), "{audience}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let signer = Signer::new();
    let padded = |bytes: usize| {
        let claims = CLAIMS.replace("{\"iss", &format!("{{\"pad\":\"{}\",\"iss", "x".repeat(bytes)));
        signer.token(r#"{"alg":"ES256","kid":"e"}"#, &claims)
    };
    let around: Vec<String> = (14_700..14_900).map(padded).collect();
    assert!(around[0].len() <= TOKEN_BYTES_MAX && around.last().unwrap().len() > TOKEN_BYTES_MAX);
    for token in around {
        match token.len() <= TOKEN_BYTES_MAX {
            true => is_believed(signer.judge(&token)),
            false => assert_eq!(signer.judge(&token), Err(ProviderError::Form)),
        }
    }
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let nested = CLAIMS.replace("{\"iss", &format!("{{\"x\":{},\"iss", deep(7000)));
    assert_eq!(signer.judge_claims(&nested), Err(ProviderError::Form));
    let header = format!(r#"{{"alg":"ES256","kid":"e","x":{}}}"#, deep(7000));
    assert_eq!(signer.judge_header(&header), Err(ProviderError::Form));
    let many: String = (0..1000).map(|number| format!(r#","x{number}":1"#)).collect();
    is_believed(signer.judge_header(&format!(r#"{{"alg":"ES256","kid":"e"{many}}}"#)));
}

#[test]
fn keys_for_something_else_are_passed_over() {
    let signer = Signer::new();
    let token = signer.token(r#"{"alg":"ES256"}"#, CLAIMS);
    let with = |key: String| {
        let keys = KeySet::parse(format!(r#"{{"keys":[{key}]}}"#).as_bytes())?;
        let header = jsonwebtoken::decode_header(&token).unwrap();
        keys.verify(&header, &token).map(drop)
    };
    let own = signer.jwk("e");
    let and = |more: &str| own.replace("{", &format!("{{{more},"));
    for key in [own.clone(), and(r#""use":"sig""#), and(r#""alg":"ES256""#), format!("5,null,{own}")] {
        assert_eq!(with(key.clone()), Ok(()), "{key}");
    }
    for key in [
        and(r#""use":"enc""#),
        and(r#""alg":"ES384""#),
        and(r#""alg":"HS256""#),
        own.replace("P-256", "P-384"),
        own.replace("P-256", "secp256k1"),
        own.replace("\"EC\"", "\"oct\""),
        r#"{"kty":"oct","k":"AAAA","kid":"e"}"#.to_owned(),
        // One coordinate takes a byte from the other.
        own.replace("\"x\":\"", "\"x\":\"A"),
        own.replace("\"y\":\"", "\"y\":\"="),
    ] {
        assert_eq!(with(key.clone()), Err(ProviderError::KeySet), "{key}");
    }
    let small = format!(r#"{{"kty":"RSA","kid":"r","n":"{}","e":"AQAB"}}"#, encoded(&[0x81; 128]));
    assert_eq!(with(small), Err(ProviderError::Key));
    let many = vec![r#"{"kty":"oct","k":"AAAA"}"#; super::PROVIDER_KEYS_MAX].join(",");
    assert_eq!(with(format!("{many},{own}")), Err(ProviderError::KeySet));
}
