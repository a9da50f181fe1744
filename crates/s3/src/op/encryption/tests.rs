//! Which headers and documents are accepted, and the errors of the others.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::BytesMut;
use http::HeaderMap;
use md5::{Digest, Md5};

use super::configuration::Configuration;
use super::customer::{OWN, read};
use crate::error::Code;

fn headers(algorithm: Option<&str>, key: Option<&[u8]>, md5: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut add = |name: &'static str, value: Option<String>| {
        if let Some(value) = value {
            headers.insert(name, value.parse().unwrap());
        }
    };
    add("x-amz-server-side-encryption-customer-algorithm", algorithm.map(str::to_owned));
    add("x-amz-server-side-encryption-customer-key", key.map(|key| BASE64_STANDARD.encode(key)));
    add("x-amz-server-side-encryption-customer-key-md5", md5.map(str::to_owned));
    headers
}

#[test]
fn a_customers_key_comes_whole_or_not_at_all() {
    let md5 = BASE64_STANDARD.encode(Md5::digest([1; 32]));
    let code = |headers: &HeaderMap| read(headers, OWN).map(|key| key.is_some()).map_err(|error| error.code);
    assert_eq!(code(&headers(None, None, None)), Ok(false));
    assert_eq!(code(&headers(Some("AES256"), Some(&[1; 32]), Some(&md5))), Ok(true));
    for (wrong, with) in [
        (headers(Some("AES128"), Some(&[1; 32]), Some(&md5)), Code::InvalidEncryptionAlgorithmError),
        (headers(Some("AES256"), None, Some(&md5)), Code::InvalidArgument),
        (headers(Some("AES256"), Some(&[1; 32]), None), Code::InvalidArgument),
        (headers(None, Some(&[1; 32]), Some(&md5)), Code::InvalidArgument),
        (headers(Some("AES256"), Some(&[2; 32]), Some(&md5)), Code::InvalidArgument),
        (headers(Some("AES256"), Some(&[1; 16]), Some(&md5)), Code::InvalidArgument),
    ] {
        assert_eq!(code(&wrong), Err(with));
        let error = read(&wrong, OWN).unwrap_err();
        assert!(!format!("{error:?}").contains(&BASE64_STANDARD.encode([1; 16])[..16]), "no key in a message");
    }
}

#[test]
fn a_configuration_comes_back_as_it_was_set() {
    let document =
        |rules: &str| format!("<ServerSideEncryptionConfiguration>{rules}</ServerSideEncryptionConfiguration>");
    let rule = |algorithm: &str| {
        let default = format!("<SSEAlgorithm>{algorithm}</SSEAlgorithm>");
        format!("<Rule><ApplyServerSideEncryptionByDefault>{default}</ApplyServerSideEncryptionByDefault></Rule>")
    };
    let set = Configuration::parse(document(&rule("AES256")).as_bytes()).unwrap();
    assert_eq!(Configuration::from_stored(&set.to_stored()).unwrap(), set);
    let mut out = BytesMut::new();
    set.write(&mut out);
    assert_eq!(Configuration::parse(&out).unwrap(), set);
    let code = |text: String| Configuration::parse(text.as_bytes()).unwrap_err().code;
    assert_eq!(code(document(&rule("aws:kms:dsse"))), Code::NotImplemented);
    let with_key = |algorithm: &str, key: &str| {
        document(&rule(algorithm))
            .replace("</SSEAlgorithm>", &format!("</SSEAlgorithm><KMSMasterKeyID>{key}</KMSMasterKeyID>"))
    };
    for text in [document(&rule("aws:kms")), with_key("aws:kms", "a-key")] {
        let set = Configuration::parse(text.as_bytes()).unwrap();
        assert_eq!(Configuration::from_stored(&set.to_stored()).unwrap(), set);
        let mut out = BytesMut::new();
        set.write(&mut out);
        assert_eq!(Configuration::parse(&out).unwrap(), set);
    }
    assert_eq!(code(with_key("AES256", "a-key")), Code::InvalidArgument);
    assert_eq!(code(with_key("aws:kms", &"k".repeat(129))), Code::InvalidArgument);
    assert_eq!(code(document(&rule("DES"))), Code::MalformedXML);
    assert_eq!(code(document("")), Code::MalformedXML);
    assert_eq!(code(document(&rule("AES256").repeat(2))), Code::MalformedXML);
    assert_eq!(code("<Other/>".to_owned()), Code::MalformedXML);
    assert!(Configuration::from_stored(&[9]).is_err());
}
