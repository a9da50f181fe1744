//! The S3 namespace against a sorted map: nasty keys, every listing option, beside reclaim.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;

use margay_volume::{DeleteRequest, ListRequest};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::maintenance::Maintained;
use world::*;

static MAINTAINED: Maintained = Maintained::new();

fn key() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => Just("a"), 6 => Just("/"), 2 => Just("-"), 2 => Just("."), 2 => Just("0"), 1 => Just("é"),
        1 => Just("\0"), 1 => Just("//"), 1 => Just("./.."), 1 => Just("b"),
    ];
    let short = prop::collection::vec(piece, 1..7).prop_map(|pieces| pieces.concat());
    let long = (0usize..3, 1000usize..=1024)
        .prop_map(|(kind, len)| ["a", "a/", "/"][kind].repeat(1024).chars().take(len).collect::<String>());
    prop_oneof![30 => short, 1 => long]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![2 => Just(String::new()), 5 => key()]
}

fn delimiter() -> impl Strategy<Value = Option<String>> {
    let set = ["/", "/", "/", "-", "a", "//", "/a", "a/", "é", "\0", "0/", ""];
    prop_oneof![Just(None), prop::sample::select(set.to_vec()).prop_map(|one| Some(one.to_owned()))]
}

#[derive(Clone, Debug)]
struct Query {
    prefix: String,
    delimiter: Option<String>,
    after: Option<String>,
    after_is_prefix: bool,
    max: usize,
}

prop_compose! {
    fn query()(
        prefix in text(), delimiter in delimiter(), after in prop::option::of(text()), after_is_prefix: bool,
        max in prop_oneof![1usize..6, Just(1000usize), Just(0)],
    ) -> Query {
        let after_is_prefix = after_is_prefix && after.as_ref().is_some_and(|after| !after.is_empty());
        Query { prefix, delimiter, after, after_is_prefix, max }
    }
}

impl Query {
    fn request(&self) -> ListRequest<'_> {
        ListRequest {
            bucket: "b",
            prefix: &self.prefix,
            delimiter: self.delimiter.as_deref(),
            after: self.after.as_deref(),
            after_is_prefix: self.after_is_prefix,
            max: self.max,
        }
    }
}

/// Lists page by page, each going on from what the last one said.
fn in_pages(world: &World, query: &Query, max: usize) -> Vec<Item> {
    let mut query = Query { max, ..query.clone() };
    let mut all = Vec::new();
    loop {
        let (items, next) = world.list(&query.request());
        assert!(items.len() <= max);
        all.extend(items);
        match next {
            None => return all,
            Some((after, is_prefix)) => (query.after, query.after_is_prefix) = (Some(after), is_prefix),
        }
    }
}

/// What to do at a key; `None` is a pass of reclaim.
fn step() -> impl Strategy<Value = (String, Option<bool>)> {
    let what = prop_oneof![12 => Just(Some(true)), 4 => Just(Some(false)), 1 => Just(None)];
    (key(), what)
}

fn listings_match(steps: &[(String, Option<bool>)], queries: &[Query]) {
    let world = World::new(4096);
    wait(world.volume.create_bucket("b")).unwrap();
    let mut model = BTreeMap::new();
    for (index, (key, what)) in steps.iter().enumerate() {
        match what {
            Some(true) => {
                // Most are in their rows, some have bytes that reclaim moves.
                let body = body_of(index, [0, 1, 2, 3, 4, 9000][index % 6]);
                world.put("b", key, &body).unwrap();
                model.insert(key.clone(), body);
            }
            Some(false) => assert_eq!(world.delete("b", key).unwrap(), model.remove(key).is_some()),
            None => MAINTAINED.pass(&world.volume, &*world.engine),
        }
    }
    for (key, body) in &model {
        assert_eq!(&world.get("b", key).unwrap(), body);
    }
    let usage = wait(world.volume.usage("b")).unwrap();
    assert_eq!(usage.objects, model.len() as u64);
    assert_eq!(usage.bytes, model.values().map(|body| body.len() as u64).sum::<u64>());
    for query in queries {
        assert_eq!(world.list(&query.request()), model_list(&model, &query.request()), "{query:?}");
        let whole = Query { max: usize::MAX, ..query.clone() };
        let all = model_list(&model, &whole.request()).0;
        assert_eq!(in_pages(&world, query, query.max.max(1)), all, "{query:?}");
    }
    delete_together(&world, &mut model);
    for key in model.keys() {
        assert!(world.delete("b", key).unwrap());
    }
    wait(world.volume.delete_bucket("b")).unwrap();
}

/// Deletes two of three keys, and some that are not there, in one request.
fn delete_together(world: &World, model: &mut BTreeMap<String, Vec<u8>>) {
    let all: Vec<String> = model.keys().flat_map(|key| [key.clone(), format!("{key}/none")]).collect();
    let keys: Vec<&String> = all.iter().enumerate().filter(|(index, _)| index % 6 != 2).map(|(_, key)| key).collect();
    let requests: Vec<DeleteRequest<'_>> =
        keys.iter().filter(|key| key.len() <= 1024).map(|key| DeleteRequest::of(key)).collect();
    let answers = wait(world.volume.delete_objects("b", &requests)).unwrap();
    for (request, answer) in requests.iter().zip(answers) {
        assert_eq!(answer.unwrap().removed, model.remove(request.key).is_some(), "{}", request.key);
    }
    assert_eq!(world.keys("b"), model.keys().cloned().collect::<Vec<_>>());
}

#[test]
fn listings_are_those_of_a_sorted_map() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 150, ..ProptestConfig::default() });
    let cases = (prop::collection::vec(step(), 1..40), prop::collection::vec(query(), 20));
    let done = runner.run(&cases, |(steps, queries)| {
        listings_match(&steps, &queries);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    MAINTAINED.told("listings of nasty keys");
}
