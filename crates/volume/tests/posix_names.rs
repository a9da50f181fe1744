//! POSIX operations on names, one case after another, with what S3 says about them.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use margay_volume::posix::*;
use world::tree::*;

#[test]
fn what_is_made_is_found_by_both_doors() {
    let tree = Tree::new();
    let made = tree.directory("d").unwrap();
    assert_eq!((made.kind, made.rights, made.uid, made.gid, made.links), (FileKind::Directory, 0o755, 7, 8, 2));
    let file = tree.file("d/f").unwrap();
    assert_eq!((file.kind, file.rights, file.size), (FileKind::Regular, 0o755, 0));
    assert_eq!(tree.at("d/f").unwrap(), file);
    assert_eq!(tree.mount.attributes(file.ino).unwrap(), file);
    assert!(tree.at("d").unwrap().modified > made.modified);
    assert_eq!(tree.mount.parent(made.ino).unwrap(), tree.root());
    assert_eq!(tree.mount.parent(tree.root()).unwrap(), tree.root());
    assert_eq!(tree.world.keys("b"), ["d/", "d/f"]);
    assert!(matches!(tree.file("d/f"), Err(PosixError::Exists)));
    assert!(matches!(tree.directory("d/f"), Err(PosixError::Exists)));
    assert!(matches!(tree.file("d"), Err(PosixError::Exists)));
    assert!(matches!(tree.at("d/g"), Err(PosixError::NotFound)));
    assert_eq!(tree.mount.statistics().unwrap().files, 1);
    tree.clean();
}

#[test]
fn what_a_kernel_knew_goes_with_its_mount() {
    let tree = Tree::new();
    let volume = std::sync::Arc::clone(&tree.world.volume);
    let other = Mount::open(std::sync::Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
    tree.directory("d").unwrap();
    let files: Vec<_> = (0..100).map(|number| tree.file(&format!("d/{number}")).unwrap().ino).collect();
    // The other kernel knows one of them, and has it open.
    let directory = other.lookup(other.root(), &plain("d")).unwrap().ino;
    let file = other.lookup(directory, &plain("7")).unwrap();
    let read = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let handle = other.open_file(file.ino, read).unwrap();
    assert!(files.iter().all(|ino| tree.mount.knows(*ino)));
    assert_eq!((tree.mount.known(), other.known(), volume.known_files()), (102, 3, 105));
    tree.mount.kernel_left();
    assert_eq!((tree.mount.known(), other.known(), volume.known_files()), (0, 3, 3));
    let Tree { world, mount } = tree;
    drop(mount);
    assert_eq!(volume.known_files(), 3);
    assert_eq!(other.attributes(file.ino).unwrap().ino, file.ino);
    // An open file is found after its mount forgot it, and where another one moved it.
    let mount = Mount::open(std::sync::Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
    other.kernel_left();
    other.write(&handle, 0, b"late", false).unwrap();
    mount.rename(directory, &plain("7"), directory, &plain("x"), RenameMode::Replace).unwrap();
    other.release(handle).unwrap();
    assert_eq!(mount.lookup(directory, &plain("x")).unwrap().size, 4);
    drop((mount, other));
    assert_eq!(volume.known_files(), 0);
    drop(world);
}

#[test]
fn removals_refuse_what_is_not_theirs() {
    let tree = Tree::new();
    let directory = tree.directory("d").unwrap();
    tree.file("d/f").unwrap();
    assert!(matches!(tree.unlink("d"), Err(PosixError::IsDirectory)));
    assert!(matches!(tree.rmdir("d/f"), Err(PosixError::NotDirectory)));
    assert!(matches!(tree.rmdir("d"), Err(PosixError::NotEmpty)));
    tree.unlink("d/f").unwrap();
    assert!(matches!(tree.unlink("d/f"), Err(PosixError::NotFound)));
    tree.rmdir("d").unwrap();
    assert_eq!(tree.mount.attributes(directory.ino).unwrap().links, 0, "the kernel knows it still");
    let late = tree.mount.make_file(directory.ino, &plain("late"), &NEW, FileKind::Regular, 0);
    assert!(matches!(late, Err(PosixError::NotFound)), "{late:?}");
    assert!(tree.world.keys("b").is_empty());
    tree.clean();
}

#[test]
fn a_directory_made_by_a_put_stays_once_posix_changed_it() {
    let tree = Tree::new();
    tree.world.put("b", "p/x", b"1").unwrap();
    tree.world.put("b", "q/x", b"1").unwrap();
    tree.file("p/y").unwrap();
    for key in ["p/x", "p/y", "q/x"] {
        tree.world.delete("b", key).unwrap();
    }
    assert!(tree.at("p").is_ok());
    assert!(matches!(tree.at("q"), Err(PosixError::NotFound)));
    tree.clean();
}

#[test]
fn an_empty_body_of_a_directory_is_not_seen_and_goes_with_it() {
    let tree = Tree::new();
    tree.world.put("b", "e/", b"").unwrap();
    tree.world.put("b", "f/", b"body").unwrap();
    assert!(tree.lines(tree.at("e").unwrap().ino).is_empty());
    assert_eq!(tree.lines(tree.at("f").unwrap().ino), [""]);
    assert!(matches!(tree.rmdir("f"), Err(PosixError::NotEmpty)));
    tree.rmdir("e").unwrap();
    tree.unlink("f/").unwrap();
    tree.rmdir("f").unwrap();
    assert!(tree.world.keys("b").is_empty());
    tree.clean();
}

#[test]
fn a_file_beside_a_directory_has_its_own_name() {
    let tree = Tree::new();
    for key in ["a", "a-b", "a/x", "b"] {
        tree.world.put("b", key, b"1").unwrap();
    }
    assert_eq!(tree.lines(tree.root()), ["a*", "a-b", "a/", "b"]);
    let beside = Name::Beside("a".to_owned());
    assert_eq!(tree.at("a").unwrap().kind, FileKind::Directory);
    assert_eq!(tree.mount.lookup(tree.root(), &beside).unwrap().kind, FileKind::Regular);
    let none = tree.mount.lookup(tree.root(), &Name::Beside("b".to_owned()));
    assert!(matches!(none, Err(PosixError::NotFound)));
    tree.mount.unlink(tree.root(), &beside).unwrap();
    assert_eq!(tree.world.keys("b"), ["a-b", "a/x", "b"]);
    tree.clean();
}

#[test]
fn a_long_name_is_found_by_its_hash() {
    let tree = Tree::new();
    let long = "x".repeat(300);
    tree.world.put("b", &long, b"1").unwrap();
    let name = Name::Long { prefix: "x".repeat(200), hash: long_name_hash(&long), beside: false };
    assert_eq!(tree.mount.lookup(tree.root(), &name).unwrap().size, 1);
    assert!(matches!(tree.mount.lookup(tree.root(), &plain(&long)), Err(PosixError::NameTooLong)));
    tree.mount.rename(tree.root(), &name, tree.root(), &plain("short"), RenameMode::Replace).unwrap();
    assert_eq!(tree.world.keys("b"), ["short"]);
    tree.clean();
}

#[test]
fn a_long_name_beside_a_directory_is_found_by_its_hash() {
    let tree = Tree::new();
    for long in ["x".repeat(250), "y".repeat(300)] {
        tree.world.put("b", &long, b"1").unwrap();
        tree.world.put("b", &format!("{long}/z"), b"2").unwrap();
        let name = |beside| Name::Long { prefix: long[..200].to_owned(), hash: long_name_hash(&long), beside };
        assert_eq!(tree.mount.lookup(tree.root(), &name(true)).unwrap().kind, FileKind::Regular);
        assert_eq!(tree.mount.lookup(tree.root(), &name(false)).unwrap().kind, FileKind::Directory);
        tree.mount.unlink(tree.root(), &name(true)).unwrap();
        assert!(matches!(tree.mount.lookup(tree.root(), &name(true)), Err(PosixError::NotFound)));
        assert_eq!(tree.mount.lookup(tree.root(), &name(false)).unwrap().kind, FileKind::Directory);
    }
    tree.clean();
}

#[test]
fn renames_follow_posix() {
    use RenameMode::{Exchange, NoReplace, Replace};
    let tree = Tree::new();
    for path in ["d", "d/e", "full", "empty"] {
        tree.directory(path).unwrap();
    }
    for path in ["f", "g", "full/x"] {
        tree.file(path).unwrap();
    }
    let (f, d) = (tree.at("f").unwrap().ino, tree.at("d").unwrap().ino);
    assert!(matches!(tree.rename("d", "f", Replace), Err(PosixError::NotDirectory)));
    assert!(matches!(tree.rename("f", "d", Replace), Err(PosixError::IsDirectory)));
    assert!(matches!(tree.rename("d", "full", Replace), Err(PosixError::NotEmpty)));
    assert!(matches!(tree.rename("d", "d/e/d", Replace), Err(PosixError::Invalid)));
    assert!(matches!(tree.rename("d", "d/e", Exchange), Err(PosixError::Invalid)));
    assert!(matches!(tree.rename("d/e", "d", Exchange), Err(PosixError::Invalid)));
    assert!(matches!(tree.rename("f", "g", NoReplace), Err(PosixError::Exists)));
    assert!(matches!(tree.rename("f", "none", Exchange), Err(PosixError::NotFound)));
    assert!(matches!(tree.rename("none", "f", Replace), Err(PosixError::NotFound)));
    tree.rename("f", "f", Replace).unwrap();
    tree.rename("f", "g", Replace).unwrap();
    assert_eq!(tree.mount.attributes(f).unwrap().ino, f);
    assert_eq!(tree.at("g").unwrap().ino, f);
    tree.rename("d", "empty", Replace).unwrap();
    assert_eq!(tree.at("empty").unwrap().ino, d);
    tree.rename("empty/e", "e", NoReplace).unwrap();
    tree.rename("g", "empty", Exchange).unwrap();
    assert_eq!((tree.at("empty").unwrap().ino, tree.at("g").unwrap().ino), (f, d));
    tree.rename("full", "e", Exchange).unwrap();
    assert_eq!(tree.world.keys("b"), ["e/", "e/x", "empty", "full/", "g/"]);
    tree.clean();
}

#[test]
fn reading_goes_on_where_it_stopped() {
    let tree = Tree::new();
    for index in 0..700 {
        tree.file(&format!("f{index:03}")).unwrap();
    }
    let handle = tree.mount.open_directory(tree.root()).unwrap();
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let mut page = Vec::new();
        let mut visit = |item: &DirectoryItem<'_>| {
            if page.len() == 23 {
                return false;
            }
            page.push((item.name.to_owned(), item.cookie));
            true
        };
        tree.mount.read_directory(&handle, cookie, false, &mut visit).unwrap();
        let Some((last, at)) = page.last() else { break };
        cookie = *at;
        // The name where the reader is goes; what follows stays as it was.
        tree.unlink(last).unwrap();
        names.extend(page.into_iter().map(|(name, _)| name));
    }
    assert_eq!(names, (0..700).map(|index| format!("f{index:03}")).collect::<Vec<_>>());
    tree.clean();
}
