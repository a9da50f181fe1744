//! Top-level modules of a crate import each other in one direction.
//!
//! Why:  modules that import each other are one module in several files, and none can be understood alone.
//! Not here: cycles through names that the crate's root exports with `*`.

use std::collections::{BTreeMap, BTreeSet};

use crate::expect_none;
use crate::sources::rust_files;

/// Module, and the modules it imports.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// Graphs of all crates, by the folder of their sources.
pub(crate) fn graphs(files: &[(String, String)]) -> BTreeMap<String, Graph> {
    let mut crates: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, text) in files {
        let Some(at) = path.find("src/") else { continue };
        let (folder, inner) = path.split_at(at + 4);
        crates.entry(folder.to_owned()).or_default().push((inner, text));
    }
    crates.into_iter().map(|(folder, files)| (folder, graph(&files))).collect()
}

/// The top-level module that a file belongs to.
pub(crate) fn module_of(inner: &str) -> String {
    inner.split('/').next().unwrap_or(inner).trim_end_matches(".rs").to_owned()
}

fn graph(files: &[(&str, &str)]) -> Graph {
    let modules: BTreeSet<String> = files.iter().map(|(inner, _)| module_of(inner)).collect();
    let root = files.iter().find(|(inner, _)| *inner == "lib.rs").map_or("", |(_, text)| *text);
    let exports = exports(root);
    let mut graph = Graph::new();
    for (inner, text) in files {
        let from = module_of(inner);
        if from == "lib" || from == "main" || from == "tests" || inner.ends_with("tests.rs") || inner.contains("tests/")
        {
            continue;
        }
        let edges = graph.entry(from.clone()).or_default();
        for name in crate_names(without_tests(text)) {
            let to = exports.get(&name).cloned().unwrap_or(name);
            if to != from && modules.contains(&to) && to != "lib" {
                edges.insert(to);
            }
        }
    }
    graph
}

/// What the root exports by name, and from which module.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for piece in root.split("use ").skip(1) {
        let Some((statement, _)) = piece.split_once(';') else { continue };
        let Some((module, names)) = statement.trim_start_matches("self::").split_once("::") else { continue };
        for name in names.trim_matches(|c: char| c == '{' || c == '}' || c.is_whitespace()).split(',') {
            let name = name.rsplit("::").next().unwrap_or(name).trim();
            exports.insert(name.to_owned(), module.trim().to_owned());
        }
    }
    exports
}

pub(crate) fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\n").next().unwrap_or(text)
}

/// First names of all `crate::` paths outside comments, also of grouped ones.
fn crate_names(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => names.extend(first_name(rest)),
            Some(group) => {
                let mut depth = 0;
                let mut start = true;
                for (index, character) in group.char_indices() {
                    match character {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        _ if start && !character.is_whitespace() => {
                            names.extend(first_name(&group[index..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    names
}

fn first_name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// Groups of modules that reach each other, largest first.
pub(crate) fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (from, reached) in &reach {
        let group: Vec<String> = reached
            .iter()
            .filter(|to| reach.get(*to).is_some_and(|back| back.contains(*from)))
            .map(|to| (*to).clone())
            .collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

fn reachable<'a>(graph: &'a Graph, from: &'a String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for to in graph.get(module).into_iter().flatten() {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

fn findings(files: &[(String, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    for (folder, graph) in graphs(files) {
        let cycles = circles(&graph);
        for cycle in &cycles {
            let edges: Vec<String> = cycle
                .iter()
                .map(|from| {
                    let to: Vec<&str> =
                        graph[from].iter().filter(|to| cycle.contains(to)).map(String::as_str).collect();
                    format!("{from} -> {}", to.join(" "))
                })
                .collect();
            findings.push(format!("{folder}: modules import each other in a circle: {}", edges.join("; ")));
        }
    }
    findings
}

#[test]
fn modules_have_no_cycles() {
    expect_none(&findings(&rust_files()));
}

#[test]
fn canary_a_cycle_is_found_in_every_form() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let plain = [file("src/a.rs", "use crate::b::X;"), file("src/b.rs", "use crate::a::Y;"), file("src/c.rs", "")];
    assert_eq!(findings(&plain).len(), 1);
    let grouped =
        [file("x/src/a.rs", "use crate::{c::{Z, W}, b::X};"), file("x/src/b/d.rs", "fn f() { crate::a::g() }")];
    assert_eq!(findings(&grouped).len(), 1);
    let exported = [
        file("src/lib.rs", "pub use b::{X, Y};"),
        file("src/a.rs", "use crate::X;"),
        file("src/b.rs", "use crate::a::Z;"),
    ];
    assert_eq!(findings(&exported).len(), 1);
    let fine = [
        file("src/a.rs", "use crate::b::X; // crate::a\n"),
        file("src/b.rs", "// crate::a\n#[cfg(test)]\nmod tests { use crate::a::Y; }"),
        file("src/b/tests.rs", "use crate::a;"),
    ];
    assert_eq!(findings(&fine), Vec::<String>::new());
}
