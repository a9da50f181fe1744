//! Modules that share a type call each other through it in one direction.
//!
//! Why:      imports do not show a call of `self.replace(…)` whose `impl` block is in another file: a type with blocks in
//!           thirty modules ties them together, and none of them can be understood alone.
//! Not here: imports (cycles), calls of functions (they are imported), methods that several modules define.

use std::collections::{BTreeMap, BTreeSet};

use crate::cycles::{Graph, circles, graphs, module_of, without_tests};
use crate::expect_none;
use crate::sources::rust_files;

/// The types with inherent blocks, and the text of each block.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let mut blocks = Vec::new();
    for (at, _) in text.match_indices("\nimpl") {
        let block = &text[at + 1..];
        let Some((head, _)) = block.split_once(" {\n") else { continue };
        // `impl<T> Type<T>`, never `impl Trait for Type`.
        let head = head.trim_start_matches("impl");
        let head = if head.starts_with('<') { head.split_once("> ").map_or("", |(_, rest)| rest) } else { head };
        let name = head.trim().split(['<', ' ']).next().unwrap_or_default();
        if head.contains(" for ") || name.is_empty() {
            continue;
        }
        let end = block.find("\n}\n").unwrap_or(block.len());
        blocks.push((name, &block[..end]));
    }
    blocks
}

/// Names behind `before` that `after` follows.
fn names<'a>(text: &'a str, before: &str, after: &[char]) -> BTreeSet<&'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(before)
        .filter_map(|(at, _)| {
            let rest = &text[at + before.len()..];
            let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            (len > 0 && rest[len..].starts_with(after)).then_some(&rest[..len])
        })
        .collect()
}

/// Which module calls which through a type that both have blocks of; by the folder of a crate's sources.
fn calls(files: &[(String, String)]) -> BTreeMap<String, Graph> {
    let mut methods: BTreeMap<(String, &str, &str), BTreeSet<String>> = BTreeMap::new();
    let mut found = Vec::new();
    for (path, text) in files {
        let Some((folder, inner)) = path.find("src/").map(|at| path.split_at(at + 4)) else { continue };
        if inner.ends_with("tests.rs") || inner.contains("tests/") {
            continue;
        }
        let module = module_of(inner);
        for (name, block) in blocks(without_tests(text)) {
            for method in names(block, "fn ", &['(', '<']) {
                methods.entry((folder.to_owned(), name, method)).or_default().insert(module.clone());
            }
            found.push((folder.to_owned(), module.clone(), name, block));
        }
    }
    let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
    for (folder, from, name, block) in found {
        for method in names(block, "self.", &['(']) {
            let Some(modules) = methods.get(&(folder.clone(), name, method)) else { continue };
            if let (1, Some(to)) = (modules.len(), modules.first().filter(|to| **to != from)) {
                graphs.entry(folder.clone()).or_default().entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    graphs
}

fn findings(files: &[(String, String)]) -> Vec<String> {
    let mut all = graphs(files);
    for (folder, calls) in calls(files) {
        let graph = all.entry(folder).or_default();
        for (from, to) in calls {
            for module in &to {
                graph.entry(module.clone()).or_default();
            }
            graph.entry(from).or_default().extend(to);
        }
    }
    all.iter()
        .map(|(folder, graph)| (folder, circles(graph)))
        .filter(|(_, circles)| !circles.is_empty())
        .map(|(folder, circles)| format!("{folder}: modules call each other in circles: {circles:?}"))
        .collect()
}

#[test]
fn modules_call_each_other_in_no_circle() {
    expect_none(&findings(&rust_files()));
}

#[test]
fn canary_a_circle_of_calls_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let volume = |path: &str, body: &str| file(path, &format!("use x;\n\nimpl Volume {{\n    {body}\n}}\n"));
    let open = volume("x/src/open.rs", "fn get(&self) {}");
    let put = volume("x/src/put.rs", "fn put(&self) { self.get(); self.replace(1) }");
    let versions = volume("x/src/versions.rs", "fn replace<T>(&self, t: T) { self.get() }");
    let down = [open.clone(), put.clone(), versions];
    assert_eq!(findings(&down), Vec::<String>::new());
    let up = volume("x/src/versions.rs", "fn replace(&self, t: u8) { self.put() }");
    assert_eq!(findings(&[open.clone(), put.clone(), up]).len(), 1);
    // What several modules define is no call of one of them.
    let both = volume("x/src/versions.rs", "fn replace(&self, t: u8) { self.put() }\n    fn put(&self) {}");
    assert_eq!(findings(&[open, put, both]), Vec::<String>::new());
}
