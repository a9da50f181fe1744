//! Protected connections to a real server.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]

mod server;

use std::path::{Path, PathBuf};

use margay_meta::{Batch, Engine, Write};
use margay_postgres::{OpenError, PostgresEngine};
use server::Server;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tls").join(name)
}

#[test]
fn a_server_is_verified_as_the_place_says() {
    let Some(server) = Server::start() else { return };
    let port = server.protect(&fixture("first.pem"), &fixture("first.key.pem"));
    let open = |host: &str, words: &str| {
        let mut options = server.options("one");
        options.config = format!("postgres://margay@{host}:{port}/postgres?{words}");
        PostgresEngine::open(&options)
    };
    let (right, wrong) = (fixture("first.pem"), fixture("second.pem"));
    let root = |mode: &str, root: &Path| format!("sslmode={mode}&sslrootcert={}", root.display());
    // The server takes nothing unprotected.
    assert!(open("127.0.0.1", "sslmode=disable").is_err());
    for words in [
        String::new(),
        "sslmode=prefer&connect_timeout=5".to_owned(),
        "sslmode=require".to_owned(),
        root("require", &right),
        root("verify-ca", &right),
        root("verify-full", &right),
    ] {
        let engine = open("127.0.0.1", &words).unwrap_or_else(|error| panic!("{words}: {error}"));
        let put = Write::Put { key: b"k".to_vec(), value: words.clone().into_bytes() };
        engine.commit(Batch { writes: vec![put], ..Batch::default() }).unwrap();
        assert_eq!(engine.get(b"k").unwrap().value.unwrap().value, words);
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = open("127.0.0.1", &root(mode, &wrong)).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{mode}: {error}");
    }
    // An address that the certificate does not have.
    drop(open("127.0.0.2", &root("verify-ca", &right)).unwrap());
    drop(open("127.0.0.2", &root("verify-full", &right)).unwrap_err());
    assert!(matches!(open("127.0.0.1", "sslmode=verify"), Err(OpenError::Setting(_))));
}
