//! Modules of one folder use each other in one direction, at every depth.
//!
//! Why:      `append` calls a function of `put_object`, which calls `append`: a circle that the top-level modules do not
//!           show, since both are in `op`.
//! Not here: a folder's `mod.rs` and what is below it, which are one room; methods of a type that modules share (calls).

use std::collections::{BTreeMap, BTreeSet};

use crate::cycles::{Graph, circles, without_tests};
use crate::expect_none;
use crate::sources::rust_files;

/// Circles that are not broken yet: the folder, and its modules. This list may only shrink.
const KNOWN: &[(&str, &[&str])] = &[
    ("crates/bench/src/all", &["page", "record"]),
    ("crates/bench/src/rivals", &["mounting", "running"]),
    ("crates/env/src/sim", &["crash", "disk", "file"]),
    ("crates/iam/src/registry", &["change", "managed", "named"]),
    ("crates/meta/src/embedded", &["checkpoint", "feed_logs", "replay"]),
    ("crates/meta/src/embedded", &["fold", "tree", "tree_walk"]),
    ("crates/rows/src/record", &["entry", "version"]),
    ("crates/volume/src/known", &["locations", "pruning"]),
    ("crates/volume/src/posix", &["attempt", "attributes", "directories", "locate", "mount", "opened", "removed"]),
    ("crates/volume/src/upkeep/fsck", &["backs", "check", "gather", "segments"]),
];

/// Names from the crate's root to a module; empty for the root.
type ModulePath = Vec<String>;

/// A crate's modules, without comments and tests.
type Modules = BTreeMap<ModulePath, String>;

/// The modules of each crate, by the folder of its sources.
fn crates(files: &[(String, String)]) -> BTreeMap<&str, Modules> {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for (path, text) in files {
        let Some((folder, inner)) = path.find("/src/").map(|at| (&path[..at + 4], &path[at + 5..])) else { continue };
        if inner.ends_with("tests.rs") || inner.contains("tests/") {
            continue;
        }
        let mut module: ModulePath = inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
        let code = without_tests(text).lines().map(|line| line.split("//").next().unwrap_or(line));
        crates.entry(folder).or_default().insert(module, code.collect::<Vec<_>>().join("\n"));
    }
    crates
}

/// Reads a path, or a group of them, behind `prefix`; returns the text after it.
fn read<'t>(text: &'t str, prefix: &[String], paths: &mut Vec<ModulePath>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = read(rest, prefix, paths);
            // Also passes over `as name`.
            let Some(at) = rest.find([',', '}']) else { return "" };
            let is_end = rest[at..].starts_with('}');
            rest = &rest[at + 1..];
            if is_end {
                return rest;
            }
        }
    }
    let len = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if len == 0 {
        paths.extend((!prefix.is_empty()).then(|| prefix.to_vec()));
        return text;
    }
    let mut path = prefix.to_vec();
    path.push(text[..len].to_owned());
    match text[len..].strip_prefix("::") {
        Some(rest) => read(rest, &path, paths),
        None => {
            paths.push(path);
            &text[len..]
        }
    }
}

/// Paths that a module imports or writes out.
fn paths(code: &str) -> Vec<ModulePath> {
    let mut paths = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            if !code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':')) {
                read(&code[at..], &[], &mut paths);
            }
        }
    }
    paths
}

/// Paths of a module's `use` statements.
fn imports(code: &str) -> Vec<ModulePath> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let before = code[..at].rsplit('\n').next().unwrap_or_default().trim_start();
        if before.is_empty() || before.starts_with("pub") {
            read(&code[at + "use ".len()..], &[], &mut paths);
        }
    }
    paths
}

/// The module that a path leads to from `module`, and the rest of the path; none outside the crate.
fn walk(modules: &Modules, module: &[String], path: &[String]) -> Option<(ModulePath, Vec<String>)> {
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        // Also a child's name.
        _ => module.to_vec(),
    };
    let mut rest = path.iter().skip(usize::from(path[0] == "crate")).cloned().collect::<Vec<_>>();
    rest.reverse();
    while let Some(name) = rest.pop_if(|name| *name == "super" || *name == "self") {
        if name == "super" {
            at.pop()?;
        }
    }
    while let Some(name) = rest.pop() {
        at.push(name);
        if !modules.contains_key(&at) {
            rest.extend(at.pop());
            break;
        }
    }
    rest.reverse();
    Some((at, rest))
}

/// The module where the name at the end of a path is defined, also when a module between them hands it on.
fn home(modules: &Modules, module: &[String], path: &[String]) -> Option<ModulePath> {
    let (at, rest) = walk(modules, module, path)?;
    let name = rest.first().filter(|_| at != module);
    let handed_on = name.and_then(|name| {
        let statements = imports(modules.get(&at)?);
        let path = statements.into_iter().find(|path| path.last() == Some(name) && path.len() > 1)?;
        let (home, _) = walk(modules, &at, &path)?;
        (home != at).then_some(home)
    });
    Some(handed_on.unwrap_or(at))
}

/// Which modules of a folder use which, by the folder.
fn graphs(modules: &Modules) -> BTreeMap<ModulePath, Graph> {
    let mut graphs: BTreeMap<ModulePath, Graph> = BTreeMap::new();
    for (module, code) in modules {
        for to in paths(code).iter().filter_map(|path| home(modules, module, path)) {
            let shared = module.iter().zip(&to).take_while(|(from, to)| from == to).count();
            // One of them is the `mod.rs` above the other.
            let (Some(from), Some(to)) = (module.get(shared), to.get(shared)) else { continue };
            let graph = graphs.entry(module[..shared].to_vec()).or_default();
            graph.entry(to.clone()).or_default();
            graph.entry(from.clone()).or_default().insert(to.clone());
        }
    }
    graphs
}

fn findings(files: &[(String, String)], known: &[(&str, &[&str])]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (source, modules) in crates(files) {
        for (folder, graph) in graphs(&modules) {
            let folder: Vec<&str> = std::iter::once(source).chain(folder.iter().map(String::as_str)).collect();
            found.extend(circles(&graph).into_iter().map(|circle| (folder.join("/"), circle)));
        }
    }
    let known: BTreeSet<(String, Vec<String>)> = known
        .iter()
        .map(|(folder, circle)| ((*folder).to_owned(), circle.iter().map(|name| (*name).to_owned()).collect()))
        .collect();
    let new = found.difference(&known).map(|(folder, circle)| format!("{folder}: a circle of modules: {circle:?}"));
    let gone = known.difference(&found).map(|(folder, circle)| format!("{folder}: drop {circle:?} from KNOWN"));
    new.chain(gone).collect()
}

#[test]
fn modules_of_a_folder_form_no_circle() {
    expect_none(&findings(&rust_files(), KNOWN));
}

#[test]
fn canary_a_circle_below_the_top_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let put = file("x/src/op/put.rs", "use super::{Call, append};\nfn run() { append::run() }");
    let down = file("x/src/op/append.rs", "use super::super::body::len; // super::put\nfn run() { len() }");
    let root = [file("x/src/op/mod.rs", "pub use put::{md5, Sum};\nuse append::run;"), file("x/src/body.rs", "")];
    let with = |append: &str| findings(&[&root[..], &[put.clone(), file("x/src/op/append.rs", append)]].concat(), &[]);
    assert_eq!(findings(&[&root[..], &[put.clone(), down]].concat(), &[]), Vec::<String>::new());
    for up in [
        "use super::put::{md5};",
        "fn run() { super::put::md5() }",
        "fn run() { crate::op::put::md5() }",
        "use crate::{body::{self}, op::{Call, put as other}};",
        // By way of the folder's `mod.rs`.
        "use super::Sum;",
        "fn run() { crate::op::md5() }",
    ] {
        assert_eq!(with(up).len(), 1, "{up}");
    }
    for no in ["#[cfg(test)]\nmod tests { use super::super::put; }", "use super::Call;", "fn run() { put::run() }"] {
        assert_eq!(with(no), Vec::<String>::new(), "{no}");
    }
    let circle: (&str, &[&str]) = ("x/src/op", &["append", "put"]);
    assert_eq!(
        findings(&[&root[..], &[put.clone(), file("x/src/op/append.rs", "use super::put;")]].concat(), &[circle]).len(),
        0
    );
    assert_eq!(findings(&root, &[circle]).len(), 1);
}
