//! Random operations of both doors on few colliding names, against a model of directories in memory; fsck at the end.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::{BTreeMap, HashMap};

use margay_volume::posix::*;
use margay_volume::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::maintenance::Maintained;
use world::tree::*;
use world::*;

static MAINTAINED: Maintained = Maintained::new();

#[derive(Clone, Debug)]
enum Step {
    File(Vec<&'static str>),
    Directory(Vec<&'static str>),
    Unlink(Vec<&'static str>),
    RemoveDirectory(Vec<&'static str>),
    Rename(Vec<&'static str>, Vec<&'static str>, RenameMode),
    Link(Vec<&'static str>, Vec<&'static str>),
    Put(Vec<&'static str>),
    Delete(Vec<&'static str>),
    Move(Vec<&'static str>, Vec<&'static str>),
    Maintain,
}

#[derive(Debug, Default)]
struct Directory {
    explicit: bool,
    files: BTreeMap<&'static str, u64>,
    directories: BTreeMap<&'static str, u64>,
}

/// What a plain name leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Node {
    File(u64),
    Directory(u64),
}

#[derive(Debug)]
struct Model {
    directories: HashMap<u64, Directory>,
    next: u64,
}

const ROOT: u64 = 0;

impl Model {
    fn new() -> Model {
        let root = Directory { explicit: true, ..Directory::default() };
        Model { directories: HashMap::from([(ROOT, root)]), next: 1 }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Directories of a path; `None` when one is missing.
    fn above(&self, path: &[&'static str]) -> Option<u64> {
        path[..path.len() - 1].iter().try_fold(ROOT, |at, name| self.directories[&at].directories.get(name).copied())
    }

    fn find(&self, parent: u64, name: &str) -> Option<Node> {
        let parent = &self.directories[&parent];
        let directory = parent.directories.get(name).map(|number| Node::Directory(*number));
        directory.or_else(|| parent.files.get(name).map(|number| Node::File(*number)))
    }

    fn at(&mut self, directory: u64) -> &mut Directory {
        self.directories.get_mut(&directory).unwrap()
    }

    fn changed(&mut self, directory: u64) -> &mut Directory {
        let directory = self.at(directory);
        directory.explicit = true;
        directory
    }

    fn empty(&self, directory: u64) -> bool {
        self.directories[&directory].files.is_empty() && self.directories[&directory].directories.is_empty()
    }

    /// Whether `inner` is `outer` or below it.
    fn below(&self, inner: u64, outer: u64) -> bool {
        inner == outer || self.directories[&outer].directories.values().any(|one| self.below(inner, *one))
    }

    fn links(&self, file: u64) -> u32 {
        let names = self.directories.values().flat_map(|directory| directory.files.values());
        names.filter(|number| **number == file).count() as u32
    }

    fn rename(
        &mut self,
        (parent, name): (u64, &'static str),
        (to, new): (u64, &'static str),
        mode: RenameMode,
    ) -> Result<(), &'static str> {
        let source = self.find(parent, name).ok_or("NotFound")?;
        let target = self.find(to, new);
        let circle = |model: &Model, moved, into, from| into != from && model.below(into, moved);
        match (source, target, mode) {
            (_, Some(_), RenameMode::NoReplace) => Err("Exists"),
            (_, None, RenameMode::Exchange) => Err("NotFound"),
            _ if (parent, name) == (to, new) => Ok(()),
            (one, Some(other), _) if one == other => Ok(()),
            (Node::File(file), Some(Node::Directory(directory)), RenameMode::Exchange) => {
                if self.directories[&to].files.contains_key(new) {
                    return Err("Exists");
                }
                if circle(self, directory, parent, to) {
                    return Err("Invalid");
                }
                self.changed(parent).files.remove(name);
                self.changed(to).directories.remove(new);
                self.at(parent).directories.insert(name, directory);
                self.at(to).files.insert(new, file);
                Ok(())
            }
            (Node::Directory(directory), Some(Node::File(file)), RenameMode::Exchange) => {
                if circle(self, directory, to, parent) {
                    return Err("Invalid");
                }
                if self.directories[&parent].files.contains_key(name) {
                    return Err("Exists");
                }
                self.changed(parent).directories.remove(name);
                self.changed(to).files.remove(new);
                self.at(parent).files.insert(name, file);
                self.at(to).directories.insert(new, directory);
                Ok(())
            }
            (Node::File(file), Some(Node::File(other)), RenameMode::Exchange) => {
                self.changed(parent).files.insert(name, other);
                self.changed(to).files.insert(new, file);
                Ok(())
            }
            (Node::Directory(one), Some(Node::Directory(other)), RenameMode::Exchange) => {
                if circle(self, one, to, parent) || circle(self, other, parent, to) {
                    return Err("Invalid");
                }
                self.changed(parent).directories.insert(name, other);
                self.changed(to).directories.insert(new, one);
                Ok(())
            }
            (Node::File(_), Some(Node::Directory(_)), _) => Err("IsDirectory"),
            (Node::Directory(_), Some(Node::File(_)), _) => Err("NotDirectory"),
            (Node::File(file), _, _) => {
                self.changed(parent).files.remove(name);
                self.changed(to).files.insert(new, file);
                Ok(())
            }
            (Node::Directory(directory), target, _) => {
                if circle(self, directory, to, parent) {
                    return Err("Invalid");
                }
                if let Some(Node::Directory(replaced)) = target
                    && !self.empty(replaced)
                {
                    return Err("NotEmpty");
                }
                self.changed(parent).directories.remove(name);
                self.changed(to).directories.insert(new, directory);
                Ok(())
            }
        }
    }

    fn make_above(&mut self, path: &[&'static str]) -> u64 {
        let mut at = ROOT;
        for name in &path[..path.len() - 1] {
            let number = self.number();
            let there = *self.at(at).directories.entry(name).or_insert(number);
            self.directories.entry(there).or_default();
            at = there;
        }
        at
    }

    /// Implicit directories without entries go, from the last one of the path upwards; one in `kept` stays.
    fn vacate(&mut self, path: &[&'static str], kept: &[u64]) {
        for len in (1..path.len()).rev() {
            let Some(parent) = self.above(&path[..len]) else { continue };
            let Some(directory) = self.directories[&parent].directories.get(path[len - 1]).copied() else { continue };
            if self.directories[&directory].explicit || !self.empty(directory) || kept.contains(&directory) {
                return;
            }
            self.at(parent).directories.remove(path[len - 1]);
        }
    }

    /// What S3 lists: files, and explicit directories.
    fn keys(&self, directory: u64, path: &str, into: &mut Vec<String>) {
        into.extend(self.directories[&directory].files.keys().map(|name| format!("{path}{name}")));
        for (name, number) in &self.directories[&directory].directories {
            let path = format!("{path}{name}/");
            if self.directories[number].explicit {
                into.push(path.clone());
            }
            self.keys(*number, &path, into);
        }
    }

    fn directory_links(&self, directory: u64) -> u32 {
        2 + self.directories[&directory].directories.len() as u32
    }

    /// Path and number of every line, as the mount shows it.
    fn lines(&self, directory: u64, path: &str, into: &mut Vec<(String, Node)>) {
        for (name, number) in &self.directories[&directory].directories {
            let path = format!("{path}{name}/");
            into.push((path.clone(), Node::Directory(*number)));
            self.lines(*number, &path, into);
        }
        for (name, number) in &self.directories[&directory].files {
            let beside = self.directories[&directory].directories.contains_key(name);
            into.push((format!("{path}{name}{}", if beside { "*" } else { "" }), Node::File(*number)));
        }
    }
}

fn key(path: &[&'static str]) -> String {
    path.join("/")
}

fn name_of(error: &PosixError) -> String {
    let text = format!("{error:?}");
    text.split(['(', ' ']).next().unwrap().to_owned()
}

struct Run {
    tree: Tree,
    model: Model,
    numbers: HashMap<u64, Ino>,
}

impl Run {
    /// The same directory in the tree and in the model, when both have it.
    fn parent(&self, path: &[&'static str]) -> Option<(u64, Ino)> {
        let model = self.model.above(path)?;
        let above = path[..path.len() - 1].join("/");
        Some((model, if above.is_empty() { self.tree.root() } else { self.tree.at(&above).unwrap().ino }))
    }

    fn same<T: std::fmt::Debug>(&self, step: &Step, done: Result<T, PosixError>, wanted: Result<(), &'static str>) {
        let done = done.map(|_| ()).map_err(|error| name_of(&error));
        assert_eq!(done, wanted.map_err(str::to_owned), "{step:?}");
    }

    fn make(&mut self, step: &Step, path: &[&'static str], directory: bool) {
        let Some((model, ino)) = self.parent(path) else { return };
        let name = path[path.len() - 1];
        let wanted = if self.model.find(model, name).is_some() { Err("Exists") } else { Ok(()) };
        if wanted.is_ok() {
            let number = self.model.number();
            if directory {
                self.model.changed(model).directories.insert(name, number);
                self.model.directories.insert(number, Directory { explicit: true, ..Directory::default() });
            } else {
                self.model.changed(model).files.insert(name, number);
            }
        }
        let done = if directory {
            self.tree.mount.make_directory(ino, &plain(name), &NEW)
        } else {
            self.tree.mount.make_file(ino, &plain(name), &NEW, FileKind::Regular, 0)
        };
        self.same(step, done, wanted);
    }

    fn remove(&mut self, step: &Step, path: &[&'static str], directory: bool) {
        let Some((model, ino)) = self.parent(path) else { return };
        let name = path[path.len() - 1];
        let wanted = match self.model.find(model, name) {
            None => Err("NotFound"),
            Some(Node::File(_)) if directory => Err("NotDirectory"),
            Some(Node::Directory(_)) if !directory => Err("IsDirectory"),
            Some(Node::Directory(number)) if !self.model.empty(number) => Err("NotEmpty"),
            Some(Node::File(_)) => {
                self.model.changed(model).files.remove(name);
                Ok(())
            }
            Some(Node::Directory(_)) => {
                self.model.changed(model).directories.remove(name);
                Ok(())
            }
        };
        let mount = &self.tree.mount;
        let done = if directory { mount.remove_directory(ino, &plain(name)) } else { mount.unlink(ino, &plain(name)) };
        self.same(step, done, wanted);
    }

    fn link(&mut self, step: &Step, from: &[&'static str], to: &[&'static str]) {
        let (Some((model, ino)), Some((new_model, new_ino))) = (self.parent(from), self.parent(to)) else { return };
        let (name, new_name) = (from[from.len() - 1], to[to.len() - 1]);
        let Some(Node::File(file)) = self.model.find(model, name) else { return };
        let file_ino = self.tree.mount.lookup(ino, &plain(name)).unwrap().ino;
        let done = self.tree.mount.link(file_ino, new_ino, &plain(new_name));
        let wanted = if self.model.find(new_model, new_name).is_some() { Err("Exists") } else { Ok(()) };
        if wanted.is_ok() {
            self.model.changed(new_model).files.insert(new_name, file);
        }
        self.same(step, done, wanted);
    }

    fn move_object(&mut self, from: &[&'static str], to: &[&'static str]) {
        let done = wait(self.tree.world.volume.rename("b", &key(from), &key(to), &WriteCondition::None));
        let source = self.model.above(from);
        let file = source.and_then(|source| self.model.directories[&source].files.get(from[from.len() - 1]).copied());
        let (Some(source), Some(file)) = (source, file) else {
            return assert!(matches!(done, Err(Error::NoSuchKey)), "{done:?}");
        };
        done.unwrap();
        if from == to {
            return;
        }
        let target = self.model.make_above(to);
        self.model.at(source).files.remove(from[from.len() - 1]);
        self.model.at(target).files.insert(to[to.len() - 1], file);
        let kept: Vec<u64> = (1..to.len()).map(|len| self.model.above(&to[..=len]).unwrap()).collect();
        self.model.vacate(from, &kept);
    }

    fn step(&mut self, index: usize, step: &Step) {
        match step {
            Step::File(path) => self.make(step, path, false),
            Step::Directory(path) => self.make(step, path, true),
            Step::Unlink(path) => self.remove(step, path, false),
            Step::RemoveDirectory(path) => self.remove(step, path, true),
            Step::Link(from, to) => self.link(step, from, to),
            Step::Rename(from, to, mode) => {
                let (Some((model, ino)), Some((to_model, to_ino))) = (self.parent(from), self.parent(to)) else {
                    return;
                };
                let (name, new_name) = (from[from.len() - 1], to[to.len() - 1]);
                let wanted = self.model.rename((model, name), (to_model, new_name), *mode);
                let done = self.tree.mount.rename(ino, &plain(name), to_ino, &plain(new_name), *mode);
                self.same(step, done, wanted);
            }
            Step::Put(path) => {
                self.tree.world.put("b", &key(path), &body_of(index, 200)).unwrap();
                let parent = self.model.make_above(path);
                let number = self.model.number();
                self.model.at(parent).files.insert(path[path.len() - 1], number);
            }
            Step::Delete(path) => {
                let parent = self.model.above(path);
                let there = parent.and_then(|parent| self.model.at(parent).files.remove(path[path.len() - 1]));
                assert_eq!(self.tree.world.delete("b", &key(path)).unwrap(), there.is_some());
                if there.is_some() {
                    self.model.vacate(path, &[]);
                }
            }
            Step::Move(from, to) => self.move_object(from, to),
            Step::Maintain => MAINTAINED.pass(&self.tree.world.volume, &*self.tree.world.engine),
        }
        self.compare(step);
    }

    fn walk(&self, ino: Ino, path: &str, into: &mut Vec<(String, Attributes)>) {
        let handle = self.tree.mount.open_directory(ino).unwrap();
        let mut items = Vec::new();
        let mut visit = |item: &DirectoryItem<'_>| {
            items.push((item.name.to_owned(), item.beside, item.attributes.unwrap()));
            true
        };
        self.tree.mount.read_directory(&handle, 0, true, &mut visit).unwrap();
        for (name, beside, attributes) in items {
            if attributes.kind == FileKind::Directory {
                let path = format!("{path}{name}/");
                into.push((path.clone(), attributes));
                self.walk(attributes.ino, &path, into);
            } else {
                into.push((format!("{path}{name}{}", if beside { "*" } else { "" }), attributes));
            }
        }
    }

    fn compare(&mut self, step: &Step) {
        // Numbers that the kernel has must lead to their files, wherever those were moved.
        for (file, ino) in &self.numbers {
            let links = self.model.links(*file);
            match self.tree.mount.attributes(*ino) {
                Ok(found) => assert_eq!((found.ino, found.links), (*ino, links), "{step:?}"),
                Err(error) => assert!(links == 0, "{step:?}: {error:?}"),
            }
        }
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        self.model.lines(ROOT, "", &mut wanted);
        self.walk(self.tree.root(), "", &mut found);
        wanted.sort_by(|one, other| one.0.cmp(&other.0));
        found.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(
            found.iter().map(|(path, _)| path).collect::<Vec<_>>(),
            wanted.iter().map(|(path, _)| path).collect::<Vec<_>>(),
            "{step:?}"
        );
        let root = self.tree.mount.attributes(self.tree.root()).unwrap();
        assert_eq!(root.links, self.model.directory_links(ROOT), "{step:?}");
        for ((path, node), (_, attributes)) in wanted.iter().zip(&found) {
            let links = match node {
                Node::Directory(directory) => self.model.directory_links(*directory),
                Node::File(file) => {
                    let ino = *self.numbers.entry(*file).or_insert(attributes.ino);
                    assert_eq!(attributes.ino, ino, "{step:?} {path}");
                    self.model.links(*file)
                }
            };
            assert_eq!(attributes.links, links, "{step:?} {path}");
        }
    }
}

fn path() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "a-"]), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop::sample::select(vec![RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
    prop_oneof![
        4 => path().prop_map(Step::File),
        6 => path().prop_map(Step::Directory),
        2 => path().prop_map(Step::Unlink),
        2 => path().prop_map(Step::RemoveDirectory),
        8 => (path(), path(), mode).prop_map(|(from, to, mode)| Step::Rename(from, to, mode)),
        2 => (path(), path()).prop_map(|(from, to)| Step::Link(from, to)),
        3 => path().prop_map(Step::Put),
        2 => path().prop_map(Step::Delete),
        2 => (path(), path()).prop_map(|(from, to)| Step::Move(from, to)),
        3 => Just(Step::Maintain),
    ]
}

fn matches_the_model(steps: &[Step]) {
    let mut run = Run { tree: Tree::new(), model: Model::new(), numbers: HashMap::new() };
    for (index, step) in steps.iter().enumerate() {
        run.step(index, step);
    }
    let mut keys = Vec::new();
    run.model.keys(ROOT, "", &mut keys);
    keys.sort();
    assert_eq!(run.tree.world.keys("b"), keys);
    run.tree.clean();
}

#[test]
fn any_sequence_matches_the_model() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 96, ..ProptestConfig::default() });
    let done = runner.run(&prop::collection::vec(step(), 1..60), |steps| {
        matches_the_model(&steps);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    MAINTAINED.told("operations of both doors on few names");
}
