//! The planner against a bucket and a tree: any changes, any order of answers; the bucket ends as the tree, and shows no file
//! nowhere on the way.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]

#[path = "plan/world.rs"]
mod world;

use margay_upstream::plan::{Action, Base, Bounds, Dirty, Local, first_write, plan};
use proptest::prelude::*;
use world::{NAMES, Step, World, blank};

/// Begins temporary keys.
const TEMPORARY: &str = ".margay-tmp/";

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..NAMES.len();
    let step = prop_oneof![
        3 => name().prop_map(Step::Write),
        1 => name().prop_map(Step::Chmod),
        3 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (name(), name()).prop_map(|(one, other)| Step::Exchange(one, other)),
        1 => (name(), name()).prop_map(|(from, to)| Step::Copy(from, to)),
        2 => name().prop_map(Step::Unlink),
        3 => (1_usize..4).prop_map(Step::Begin),
        2 => any::<usize>().prop_map(Step::Arrive),
        3 => any::<usize>().prop_map(Step::Answer),
        1 => Just(Step::Restart),
        2 => Just(Step::Sync),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn the_bucket_ends_as_the_tree_and_shows_no_file_nowhere(steps in steps()) {
        let mut world = World::default();
        for step in &steps {
            world.apply(step);
        }
        world.settle();
        world.is_as_the_tree();
    }
}

/// Runs the steps and tells the requests that follow, in the order of their answers.
fn requests(before: &[Step], steps: &[Step]) -> Vec<String> {
    let mut world = World::default();
    before.iter().for_each(|step| world.apply(step));
    world.settle();
    steps.iter().for_each(|step| world.apply(step));
    let mut told = Vec::new();
    loop {
        world.begin(usize::MAX);
        if world.flying.is_empty() {
            break;
        }
        let request = &world.flying[0].request;
        told.push(match &request.action {
            Action::Put => format!("put {}", request.key),
            Action::Copy { from, .. } => format!("copy {from} {}", request.key),
            Action::SetAside { from, .. } => format!("set {from} aside"),
            Action::Delete if request.key.starts_with(TEMPORARY) => "delete what was set aside".to_owned(),
            Action::Delete => format!("delete {}", request.key),
        });
        world.answer(0);
    }
    world.is_as_the_tree();
    told.iter().map(|text| if text.contains(TEMPORARY) { "copy it back".to_owned() } else { text.clone() }).collect()
}

fn bounds(dirty: &[Dirty]) -> Bounds {
    Bounds { first_write: first_write(dirty), epoch_end: None }
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

#[test]
fn ten_changes_of_a_file_are_one_request() {
    let mut steps = vec![Step::Write(A); 10];
    assert_eq!(requests(&[], &steps), ["put a"]);
    steps.push(Step::Unlink(A));
    assert_eq!(requests(&[], &steps), Vec::<String>::new());
}

#[test]
fn a_temporary_file_that_is_renamed_over_another_is_one_request_under_the_name() {
    assert_eq!(requests(&[Step::Write(A)], &[Step::Write(B), Step::Rename(B, A)]), ["put a"]);
}

#[test]
fn a_renamed_file_is_copied_and_then_removed() {
    assert_eq!(requests(&[Step::Write(A)], &[Step::Rename(A, B)]), ["copy a b", "delete a"]);
    assert_eq!(requests(&[Step::Write(A)], &[Step::Rename(A, B), Step::Write(B)]), ["put b", "delete a"]);
    assert_eq!(requests(&[Step::Write(A)], &[Step::Rename(A, B), Step::Rename(B, A)]), Vec::<String>::new());
}

#[test]
fn exchanged_files_are_set_aside_first() {
    let found = requests(&[Step::Write(A), Step::Write(B)], &[Step::Exchange(A, B)]);
    assert_eq!(found, ["set a aside", "copy b a", "copy it back", "delete what was set aside"]);
}

#[test]
fn a_removal_waits_for_the_copy_that_was_made_before() {
    let found = requests(&[Step::Write(A)], &[Step::Copy(A, B), Step::Unlink(A)]);
    assert_eq!(found, ["put b", "delete a"]);
}

/// As the object of a directory does that goes up when its last file is removed.
#[test]
fn a_removal_waits_for_a_write_of_the_same_commit() {
    let row = |file, local, base| Dirty { file, base, local, ..blank(7) };
    let base = Some(Base { key: "d/f".into(), etag: "e".into(), content: 1, attributes: 1 });
    let directory = row(2, Some(Local { key: "d/".into(), content: 2, attributes: 2 }), None);
    let dirty = [row(1, None, base), directory];
    let found = plan(&dirty, bounds(&dirty), &[], TEMPORARY);
    assert_eq!(found.iter().map(|one| (&*one.key, &one.action)).collect::<Vec<_>>(), [("d/", &Action::Put)]);
}

#[test]
fn attributes_alone_are_a_copy_onto_itself() {
    assert_eq!(requests(&[Step::Write(A)], &[Step::Chmod(A)]), ["copy a a"]);
}

#[test]
fn what_is_refused_holds_up_no_removal() {
    let local = |key: &str| Some(Local { key: key.into(), content: 1, attributes: 1 });
    let dirty = |file, local| Dirty { file, local, ..blank(file) };
    let refused = Dirty { is_refused: true, ..dirty(1, local("a")) };
    let base = Some(Base { key: "b".into(), etag: "e".into(), content: 2, attributes: 2 });
    let gone = Dirty { base, ..dirty(2, None) };
    let dirty = [refused, gone];
    let found = plan(&dirty, bounds(&dirty), &[], TEMPORARY);
    assert_eq!(found.iter().map(|one| (&*one.key, &one.action)).collect::<Vec<_>>(), [("b", &Action::Delete)]);
}

/// A bucket that has what these steps make.
fn settled(before: &[Step]) -> World {
    let mut world = World::default();
    before.iter().for_each(|step| world.apply(step));
    world.settle();
    world
}

fn in_progress(world: &World) -> Vec<(&str, &Action)> {
    world.flying.iter().map(|flying| (flying.request.key.as_str(), &flying.request.action)).collect()
}

fn removes(world: &World, key: &str) -> bool {
    in_progress(world).contains(&(key, &Action::Delete))
}

#[test]
fn a_change_of_a_file_that_is_being_sent_holds_up_later_removals() {
    let mut world = settled(&[Step::Write(A)]);
    for step in [Step::Write(B), Step::Begin(1), Step::Copy(A, B), Step::Unlink(A), Step::Chmod(B), Step::Answer(0)] {
        world.apply(&step);
    }
    world.begin(usize::MAX);
    assert_eq!(in_progress(&world), [("b", &Action::Put)]);
}

#[test]
fn the_old_name_goes_as_soon_as_what_came_before_the_rename_is_there() {
    let mut world = settled(&[Step::Write(A)]);
    for step in [Step::Rename(A, B), Step::Begin(1), Step::Answer(0), Step::Write(C)] {
        world.apply(&step);
    }
    world.begin(usize::MAX);
    assert!(removes(&world, "a"), "a write that came later holds it up: {:?}", in_progress(&world));

    let mut world = settled(&[Step::Write(A)]);
    for step in [Step::Copy(A, C), Step::Rename(A, B), Step::Begin(2), Step::Answer(1)] {
        world.apply(&step);
    }
    world.begin(usize::MAX);
    assert!(!removes(&world, "a"), "it overtakes the copy that was made before: {:?}", in_progress(&world));
}

#[test]
fn what_is_set_aside_is_still_to_be_sent() {
    let mut world = settled(&[Step::Write(A), Step::Write(B), Step::Write(C)]);
    for step in [Step::Copy(C, A), Step::Unlink(C), Step::Exchange(A, B), Step::Begin(1), Step::Answer(0)] {
        world.apply(&step);
    }
    world.begin(usize::MAX);
    assert!(!removes(&world, "c"), "it overtakes the write of what was set aside: {:?}", in_progress(&world));
}

/// The copy makes another name appear, and the bucket is to show the state of the second sync before the change of the third.
#[test]
fn what_was_synced_while_another_state_was_sent_goes_before_what_came_later() {
    let mut world = World::default();
    let copied = [Step::Write(A), Step::Sync, Step::Rename(A, B), Step::Begin(1), Step::Answer(0), Step::Begin(1)];
    for step in copied.iter().chain(&[Step::Rename(B, A), Step::Sync, Step::Chmod(A)]) {
        world.apply(step);
    }
    world.settle();
    world.is_as_the_tree();
}

/// A journal and a database, as SQLite writes them: each sync ends an epoch, and each epoch has its requests.
#[test]
fn what_was_synced_goes_before_what_came_later() {
    let commit = |number: usize| {
        let steps = [Step::Write(A), Step::Sync, Step::Write(B), Step::Sync, Step::Unlink(A), Step::Sync];
        steps.into_iter().cycle().take(6 * number)
    };
    let before: Vec<Step> = commit(1).collect();
    let found = requests(&before, &commit(3).collect::<Vec<_>>());
    assert_eq!(found, ["put a", "put b", "delete a"].repeat(3));
    // Without syncs nothing of the journal goes up.
    let unsynced: Vec<Step> = commit(3).filter(|step| !matches!(step, Step::Sync)).collect();
    assert_eq!(requests(&before, &unsynced), ["put b"]);
}

#[test]
fn what_is_sent_of_an_epoch_is_what_it_ended_with() {
    let steps = [
        Step::Write(A),
        Step::Write(B),
        Step::Sync,
        Step::Rename(A, C),
        Step::Write(B),
        Step::Sync,
        Step::Rename(B, A),
        Step::Unlink(C),
    ];
    let found = requests(&[], &steps);
    assert_eq!(found, ["put a", "put b", "copy a c", "put b", "delete a", "copy b a", "delete c", "delete b"]);
}
