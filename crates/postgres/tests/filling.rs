//! Rows of another engine that go into an empty schema: all or none.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]

use std::ops::ControlFlow;

use margay_meta::memory::Memory;
use margay_meta::{Batch, Engine, EngineError, Write};
use margay_postgres::FillError;

mod server;

/// Rows of each kind, more than are sent at once.
fn source() -> Memory {
    let engine = Memory::new();
    let mut writes = Vec::new();
    for number in 0..9000_u32 {
        let name = number.to_be_bytes();
        writes.push(Write::Put { key: [b"e", &name[..]].concat(), value: vec![number as u8; (number % 300) as usize] });
        writes.push(Write::Add { key: [b"l", &name[..]].concat(), delta: i64::from(number) - 4000 });
        writes.push(Write::Max { key: [b"t", &name[..]].concat(), at_least: u64::MAX - u64::from(number) });
    }
    engine.commit(Batch { preconditions: Vec::new(), writes, payload: None }).unwrap();
    engine
}

fn rows(engine: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    engine
        .scan(&[], &[0xff], &mut |row| {
            rows.push((row.key.to_vec(), row.value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    rows
}

#[test]
fn all_rows_arrive_as_they_were_or_none_does() {
    let Some(server) = server::Server::start() else { return };
    let (engine, wanted) = (server.engine("one"), rows(&source()));
    let filled = || {
        let mut filling = engine.fill().unwrap();
        wanted.iter().for_each(|(key, value)| filling.put(key, value).unwrap());
        filling
    };
    drop(filled());
    assert_eq!(rows(&engine), []);
    let failed = filled().commit(|| Err(EngineError::Unavailable("not now".to_owned())));
    assert!(matches!(failed, Err(FillError::Failed(_))), "{failed:?}");
    assert_eq!(rows(&engine), []);
    let filling = filled();
    // Nobody begins a volume beside it, and who comes later waits to see what became of it.
    let other = std::thread::spawn({
        let engine = server.engine("one");
        move || engine.fill().map(drop)
    });
    assert_eq!(filling.commit(|| Ok(())).unwrap(), wanted.len() as u64);
    assert!(matches!(other.join().unwrap(), Err(FillError::NotEmpty | FillError::Failed(_))));
    assert!(rows(&engine) == wanted);
    assert!(matches!(engine.fill(), Err(FillError::NotEmpty)));
    // They are rows like others.
    let (key, value) = (&wanted[5].0, b"changed".to_vec());
    let version = engine.get(key).unwrap().value.unwrap().version;
    let put = Write::Put { key: key.clone(), value };
    let precondition = margay_meta::Precondition::Version { key: key.clone(), version };
    let batch = Batch { preconditions: vec![precondition], writes: vec![put], payload: None };
    engine.commit(batch.clone()).unwrap();
    assert!(engine.commit(batch).is_err());
    engine
        .commit(Batch { writes: vec![Write::Add { key: b"l\0\0\0\x01".to_vec(), delta: 9 }], ..Batch::default() })
        .unwrap();
    let counter = engine.get(b"l\0\0\0\x01").unwrap().value.unwrap().value;
    assert_eq!(i64::from_le_bytes(counter.as_ref().try_into().unwrap()), -3990);
    assert!(matches!(server.engine("two").fill().unwrap().put(&[b'e'; 3000], b""), Err(FillError::TooLong(3000, 'e'))));
}
