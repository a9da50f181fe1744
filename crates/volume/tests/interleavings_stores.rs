//! Two volumes with a store each over one engine: two operations in every order of their steps, with reclaim of both in
//! between, and readers that began before all of it.
//!
//! Why:        each process sees the pins of its own readers only, and removes from its own store only; what the other one reads
//!             or has just named must stay.
//! Invariants: answers, contents and what fsck says are those of one of the two orders; a reader reads what it opened.
//! Not here:   many operations, in random order (two_stores).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::*;
use parking_lot::Mutex;
use world::actions::Action::*;
use world::actions::*;
use world::interposed::*;
use world::maintenance::ALL;
use world::*;

const KEYS: [&str; 3] = ["a", "b", "c"];

const ACTIONS: [Action; 8] = [
    Put("a", 200),
    AppendTo("a", 203, 300),
    Delete("a"),
    DeleteBoth("a", "b"),
    Copy("a", "b"),
    Copy("b", "c"),
    Rename("a", "b"),
    Complete("c"),
];

/// What the first volume does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Change(Action),
    /// From the look at the rows to the last byte.
    Read(&'static str),
}

const STEPS: [Step; 10] = [
    Step::Change(ACTIONS[0]),
    Step::Change(ACTIONS[1]),
    Step::Change(ACTIONS[2]),
    Step::Change(ACTIONS[3]),
    Step::Change(ACTIONS[4]),
    Step::Change(ACTIONS[5]),
    Step::Change(ACTIONS[6]),
    Step::Change(ACTIONS[7]),
    Step::Read("a"),
    Step::Read("b"),
];

fn do_step(volume: &Volume, given: &Given, step: Step) -> String {
    match step {
        Step::Change(action) => run(volume, given, action),
        Step::Read(key) => {
            let reader = wait(volume.get_object("b", key, &ReadCondition::default()));
            format!("{:?}", reader.map(|reader| read_all(&reader)))
        }
    }
}

/// Who does it, and what.
type Start = &'static [(usize, Action)];

const STARTS: [Start; 3] = [
    &[(1, Put("a", 203)), (0, Put("b", 204)), (1, PutPart)],
    &[(0, Put("a", 203)), (1, Copy("a", "b")), (1, AppendTo("a", 203, 150)), (0, PutPart)],
    &[(0, Put("a", 203)), (1, Put("a", 205)), (0, Copy("a", "c")), (1, Delete("c")), (1, Put("b", 210))],
];

struct Pair {
    engine: Arc<Interposed>,
    volumes: [Arc<Volume>; 2],
    given: Given,
    /// Opened by each volume before the two operations, with what they must give.
    readers: Vec<(Reader, Vec<u8>)>,
}

type Stores = [(Env, Arc<Store>); 2];

/// Readers are held unless the step is one: they would keep what it reads.
fn pair(stores: &Stores, start: Start, step: Step) -> Pair {
    let engine = Arc::new(Interposed::on_both_sides(Arc::new(Memory::new())));
    let below: Arc<dyn Engine> = Arc::<Interposed>::clone(&engine);
    let volumes = two_stores::volumes(&below, stores, &Options::default(), false);
    wait(volumes[0].create_bucket("b")).unwrap();
    let upload = wait(volumes[0].create_multipart("b", "c", Headers::new(), Documents::new())).unwrap().upload;
    let given = Given { upload, upload_key: "c", ..Given::default() };
    for (who, action) in start {
        run(&volumes[*who], &given, *action);
    }
    for volume in &volumes {
        let _ = run(volume, &given, Put("warm", 1));
        let _ = run(volume, &given, Delete("warm"));
    }
    let mut readers = Vec::new();
    let holding = if matches!(step, Step::Read(_)) { &[] } else { volumes.as_slice() };
    for volume in holding {
        for key in KEYS {
            if let Ok(reader) = wait(volume.get_object("b", key, &ReadCondition::default())) {
                let bytes = read_all(&reader);
                readers.push((reader, bytes));
            }
        }
    }
    Pair { engine, volumes, given, readers }
}

fn reclaim(volume: &Volume) {
    let done = volume.reclaim_once(&ALL, &SealedLogs).unwrap();
    assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0), "{done:?}");
}

/// What can be seen afterwards, without times. Before that everything that may go has gone, while readers read on.
fn outcome(pair: &Pair, stores: &Stores, answers: [String; 2]) -> String {
    for _ in 0..2 {
        pair.volumes.iter().for_each(|volume| reclaim(volume));
    }
    for (reader, bytes) in &pair.readers {
        assert!(read_all(reader) == *bytes, "a reader reads what it opened");
    }
    let mut text = format!("{answers:?}");
    for key in KEYS {
        let [one, two] = pair.volumes.each_ref().map(|volume| {
            let reader = wait(volume.get_object("b", key, &ReadCondition::default()));
            reader.map(|reader| read_all(&reader)).map_err(|error| format!("{error:?}"))
        });
        assert_eq!(one, two, "{key}: both read the same");
        text += &format!(" {key}:{one:?}");
    }
    for volume in &pair.volumes {
        let report = volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean() && report.orphans == 0 && report.unreachable_segments == 0, "{report:#?}");
        text += &format!(" {} {} {}", report.uploads, report.parts, report.live_bytes);
    }
    for (_, store) in stores {
        assert_eq!(store.taken_back(), 0, "nothing was set aside that somebody reads");
    }
    text
}

fn in_order(stores: &Stores, start: Start, (one, two): (Step, Action), swap: bool) -> String {
    let pair = pair(stores, start, one);
    let [first, second] = &pair.volumes;
    let answers = if swap {
        let answer = run(second, &pair.given, two);
        [do_step(first, &pair.given, one), answer]
    } else {
        let answer = do_step(first, &pair.given, one);
        [answer, run(second, &pair.given, two)]
    };
    outcome(&pair, stores, answers)
}

/// Runs `two` and reclaim of both at moment `at` of `one`; nothing when that has fewer moments.
fn interleaved(stores: &Stores, start: Start, (one, two): (Step, Action), at: usize) -> Option<String> {
    let pair = pair(stores, start, one);
    let answer = Arc::new(Mutex::new(None));
    let (volumes, given, slot) = (pair.volumes.clone(), pair.given.clone(), Arc::clone(&answer));
    let hook: Hook = Box::new(move || {
        *slot.lock() = Some(run(&volumes[1], &given, two));
        // A reader notices what its own process removes in another way.
        let reclaiming = if matches!(one, Step::Read(_)) { &volumes[1..] } else { &volumes[..] };
        reclaiming.iter().for_each(|volume| reclaim(volume));
    });
    pair.engine.arm(at, hook);
    let first = do_step(&pair.volumes[0], &pair.given, one);
    if pair.engine.disarm() {
        return None;
    }
    let second = answer.lock().take()?;
    Some(outcome(&pair, stores, [first, second]))
}

/// Runs the operation whole at moment `at` of a pass of the other's reclaim, which then goes on.
fn inside_reclaim(stores: &Stores, start: Start, step: Step, at: usize) -> Option<String> {
    let pair = pair(stores, start, step);
    let answer = Arc::new(Mutex::new(None));
    let (volume, given, slot) = (Arc::clone(&pair.volumes[0]), pair.given.clone(), Arc::clone(&answer));
    pair.engine.arm(at, Box::new(move || *slot.lock() = Some(do_step(&volume, &given, step))));
    reclaim(&pair.volumes[1]);
    if pair.engine.disarm() {
        return None;
    }
    let answer = answer.lock().take()?;
    Some(outcome(&pair, stores, [answer, String::new()]))
}

fn all_from(start: Start) -> usize {
    let stores = two_stores::stores();
    let mut runs = 0;
    for one in STEPS {
        for two in ACTIONS {
            let orders = [false, true].map(|swap| in_order(&stores, start, (one, two), swap));
            for at in 0.. {
                let Some(seen) = interleaved(&stores, start, (one, two), at) else { break };
                let told = format!("{one:?} with {two:?} at moment {at} from {start:?}");
                assert!(orders.contains(&seen), "{told}:\n{seen}\nnot {orders:#?}");
                runs += 1;
            }
        }
        let alone = {
            let pair = pair(&stores, start, one);
            let answer = do_step(&pair.volumes[0], &pair.given, one);
            outcome(&pair, &stores, [answer, String::new()])
        };
        for at in 0.. {
            let Some(seen) = inside_reclaim(&stores, start, one, at) else { break };
            assert_eq!(seen, alone, "{one:?} at moment {at} of the other's reclaim from {start:?}");
            runs += 1;
        }
    }
    runs
}

#[test]
fn two_processes_with_two_stores_never_remove_what_the_other_wrote_or_reads() {
    let runs: usize = std::thread::scope(|scope| {
        let threads = STARTS.map(|start| scope.spawn(move || all_from(start)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("evidence: two stores: {runs} interleavings");
    assert!(runs > 1500, "{runs} runs");
}
