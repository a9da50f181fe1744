//! Every changing operation of the S3 side in random order, against a sorted map; fsck after each sequence.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use margay_meta::unreliable::{Faults, UnreliableEngine};
use margay_volume::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::maintenance::Maintained;
use world::*;

static MAINTAINED: Maintained = Maintained::new();

type Model = BTreeMap<String, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put { key: String, len: usize },
    Delete { key: String },
    Copy { from: String, to: String },
    Rename { from: String, to: String },
    Link { from: String, to: String },
    Multipart { key: String, source: Option<String>, keep: bool },
    MakeDirectory { path: String },
    Maintain,
}

fn key() -> impl Strategy<Value = String> {
    let piece = prop_oneof![5 => Just("a"), 5 => Just("/"), 2 => Just("b"), 1 => Just("-"), 1 => Just("0")];
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop::sample::select(vec![0usize, 5, 128, 129, 4096, 5000, 90_000, 210_000]);
    prop_oneof![
        6 => (key(), len).prop_map(|(key, len)| Step::Put { key, len }),
        4 => key().prop_map(|key| Step::Delete { key }),
        4 => (key(), key()).prop_map(|(from, to)| Step::Copy { from, to }),
        3 => (key(), key()).prop_map(|(from, to)| Step::Rename { from, to }),
        3 => (key(), key()).prop_map(|(from, to)| Step::Link { from, to }),
        2 => ("[ab]/", "[ab0]/").prop_map(|(from, to)| Step::Rename { from, to }),
        2 => (key(), prop::option::of(key()), any::<bool>())
            .prop_map(|(key, source, keep)| Step::Multipart { key, source, keep }),
        1 => key().prop_map(|key| Step::MakeDirectory { path: key + "/" }),
        4 => Just(Step::Maintain),
    ]
}

fn copy(world: &World, model: &mut Model, from: &str, to: &str) {
    let condition = ReadCondition::default();
    let request = CopyRequest {
        source_bucket: "b",
        source_key: from,
        bucket: "b",
        key: to,
        source_condition: condition,
        ..CopyRequest::default()
    };
    match (wait(world.volume.copy_object(request)), model.get(from).cloned()) {
        (Ok(_), Some(body)) => drop(model.insert(to.to_owned(), body)),
        (Err(Error::NoSuchKey), None) => {}
        (outcome, wanted) => panic!("copy {from:?} {to:?}: {outcome:?}, {:?}", wanted.map(|body| body.len())),
    }
}

/// What the model says about a rename: the new model, or nothing when it is refused.
fn model_rename(model: &Model, from: &str, to: &str) -> Option<Model> {
    let mut next = model.clone();
    match (from.ends_with('/'), to.ends_with('/')) {
        (false, false) => {
            let body = next.remove(from)?;
            next.insert(to.to_owned(), body);
        }
        (true, true) => {
            let moved: Vec<String> = model.keys().filter(|key| key.starts_with(from)).cloned().collect();
            if moved.is_empty() {
                return None;
            }
            if from == to {
                return Some(next);
            }
            if to.starts_with(from) || model.keys().any(|key| key.starts_with(to)) {
                return None;
            }
            for key in moved {
                let body = next.remove(&key).unwrap();
                next.insert(format!("{to}{}", &key[from.len()..]), body);
            }
        }
        _ => return None,
    }
    Some(next)
}

fn multipart(world: &World, model: &mut Model, key: &str, source: Option<&str>, keep: bool) {
    let volume = &world.volume;
    let upload = wait(volume.create_multipart("b", key, Headers::new(), Documents::new())).unwrap().upload;
    let put = |number: u16, body: &[u8]| {
        let staged = world.stage("b", body);
        wait(volume.put_part("b", key, &upload, number, etag_of(body), Headers::new(), staged)).unwrap()
    };
    put(7, &body_of(7, 3000));
    let mut last = put(9, &body_of(9, 70_000));
    let mut body = body_of(9, 70_000);
    if let Some(source) = source {
        let size = model.get(source).map_or(0, Vec::len) as u64;
        let range = if size > 2 { Some(1..size - 1) } else { None };
        let slice = range.clone();
        let condition = ReadCondition::default();
        match wait(volume.copy_part("b", key, &upload, 9, ("b", source, None), range, &condition)) {
            Ok(part) => {
                let all = &model[source];
                body = slice.map_or(all.clone(), |range| all[range.start as usize..range.end as usize].to_vec());
                last = part;
            }
            Err(Error::NoSuchKey) => assert!(!model.contains_key(source)),
            Err(error) => panic!("{error:?}"),
        }
    }
    if !keep {
        return wait(volume.abort_multipart("b", key, &upload)).unwrap();
    }
    let choice = [PartChoice { number: 9, etag: last.etag }];
    wait(volume.complete_multipart("b", key, &upload, &choice, Headers::new(), &WriteCondition::None)).unwrap();
    model.insert(key.to_owned(), body);
}

fn run(world: &World, model: &mut Model, index: usize, step: &Step) {
    match step {
        Step::Put { key, len } => {
            world.put("b", key, &body_of(index, *len)).unwrap();
            model.insert(key.clone(), body_of(index, *len));
        }
        Step::Delete { key } => assert_eq!(world.delete("b", key).unwrap(), model.remove(key).is_some()),
        Step::Copy { from, to } => copy(world, model, from, to),
        Step::Link { from, to } => match rows::link(&world.volume, "b", from, to).as_str() {
            "linked" => drop(model.insert(to.clone(), model[from].clone())),
            "exists" => assert!(model.contains_key(to)),
            // An explicit directory is an object, but no file.
            "not found" => assert!(!model.contains_key(from) || from.ends_with('/')),
            "no directory" => {}
            other => panic!("{other}"),
        },
        Step::Rename { from, to } => {
            let done = wait(world.volume.rename("b", from, to, &WriteCondition::None));
            match model_rename(model, from, to) {
                Some(next) if done.is_ok() => *model = next,
                None if matches!(done, Err(Error::NoSuchKey | Error::PreconditionFailed)) => {}
                // A directory that is empty but explicit gives way to another one.
                None if done.is_ok() => {
                    assert_eq!(model.remove(to), Some(Vec::new()));
                    *model = model_rename(model, from, to).unwrap();
                }
                wanted => panic!("{from:?} {to:?}: {done:?}, {:?}", wanted.map(|next| next.len())),
            }
        }
        Step::Multipart { key, source, keep } => multipart(world, model, key, source.as_deref(), *keep),
        // To S3 it is an empty object, unless there is one with a body.
        Step::MakeDirectory { path } => {
            wait(world.volume.make_directory("b", path)).unwrap();
            model.entry(path.clone()).or_default();
        }
        Step::Maintain => MAINTAINED.pass(&world.volume, &*world.engine),
    }
}

fn compare(world: &World, model: &Model) {
    assert_eq!(world.keys("b"), model.keys().cloned().collect::<Vec<_>>());
    for (key, body) in model {
        assert!(world.get("b", key).unwrap() == *body, "{key:?}: another body");
    }
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
}

fn matches_the_model(steps: &[Step], world: &World) {
    wait(world.volume.create_bucket("b")).unwrap();
    let mut model = Model::new();
    for (index, step) in steps.iter().enumerate() {
        run(world, &mut model, index, step);
    }
    compare(world, &model);
    for key in model.keys() {
        assert!(world.delete("b", key).unwrap());
    }
    compare(world, &Model::new());
    wait(world.volume.delete_bucket("b")).unwrap();
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert_eq!((report.live_bytes, report.files, report.directories), (0, 0, 0));
}

#[test]
fn any_sequence_matches_the_model() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 45, ..ProptestConfig::default() });
    let cases = (prop::collection::vec(step(), 1..40), prop::sample::select(vec![0usize, 4096, EMBEDDED]));
    let done = runner.run(&cases, |(steps, payload)| {
        matches_the_model(&steps, &World::new(payload));
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    MAINTAINED.told("operations of S3 in random order");
}

/// Nothing is lost and nothing made twice where answers are lost, commits arrive late or never, and the engine is away at
/// times.
#[test]
fn any_sequence_over_an_unreliable_engine_matches_the_model() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 30, ..ProptestConfig::default() });
    let sizes = prop::sample::select(vec![0usize, 4096, EMBEDDED]);
    let cases = (prop::collection::vec(step(), 1..40), sizes, any::<u64>());
    let counts = std::cell::RefCell::new([0; 4]);
    let done = runner.run(&cases, |(steps, payload, seed)| {
        let mut unreliable = None;
        let world = World::over(payload, Options { run_bytes_max: 40 << 10, ..Options::default() }, |engine| {
            Arc::clone(unreliable.insert(Arc::new(UnreliableEngine::new(engine, Faults::default(), seed)))) as _
        });
        matches_the_model(&steps, &world);
        let told = unreliable.expect("the world was made over it").counts();
        let told = [told.unavailable, told.lost_answers, told.arrived_late, told.void];
        counts.borrow_mut().iter_mut().zip(told).for_each(|(sum, count)| *sum += count);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    let [unavailable, lost, late, void] = counts.into_inner();
    println!("evidence: {unavailable} calls unavailable, {lost} answers lost, {late} commits late, {void} never");
    assert!([unavailable, lost, late, void].iter().all(|count| *count > 20), "a fault that is rare shows nothing");
}
