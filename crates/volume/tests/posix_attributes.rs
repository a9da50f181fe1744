//! Attributes, links, extended attributes and access control lists, with what S3 says about them.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use margay_env::Timestamp;
use margay_volume::posix::*;
use margay_volume::*;
use world::tree::*;
use world::*;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// An access control list as the kernel writes it: tag, permissions, id.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Owner, user 5, group, mask, others.
fn named(owner: u16, user: u16, group: u16, mask: u16, others: u16) -> Vec<u8> {
    let none = u32::MAX;
    acl(&[(1, owner, none), (2, user, 5), (4, group, none), (16, mask, none), (32, others, none)])
}

fn names(tree: &Tree, ino: Ino) -> Vec<String> {
    let list = tree.mount.list_xattrs(ino).unwrap();
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
}

fn set(tree: &Tree, ino: Ino, name: &str, value: &[u8], how: SetXattr) -> Result<(), PosixError> {
    tree.mount.set_xattr(ino, name.as_bytes(), value, how, false)
}

#[test]
fn rights_owner_and_times_are_set() {
    let tree = Tree::new();
    for ino in [tree.file("f").unwrap().ino, tree.directory("d").unwrap().ino, tree.root()] {
        let before = tree.mount.attributes(ino).unwrap();
        let change = AttributeChange { rights: Some(0o6750), uid: Some(1), gid: Some(2), ..AttributeChange::default() };
        let after = tree.mount.set_attributes(ino, &change).unwrap();
        assert_eq!((after.rights, after.uid, after.gid, after.kind), (0o6750, 1, 2, before.kind));
        assert!(after.changed > before.changed && after.modified == before.modified);
        let times = AttributeChange {
            accessed: Some(SetTime::At(Timestamp(5))),
            modified: Some(SetTime::At(Timestamp(7))),
            ..AttributeChange::default()
        };
        let after = tree.mount.set_attributes(ino, &times).unwrap();
        assert_eq!((after.accessed, after.modified), (Timestamp(5), Timestamp(7)));
        assert!(after.changed > before.changed);
        let kill = AttributeChange { kill_privileges: true, ..AttributeChange::default() };
        // Set-group-id of a directory gives no rights, and stays.
        let left = if before.kind == FileKind::Directory { 0o6750 } else { 0o750 };
        assert_eq!(tree.mount.set_attributes(ino, &kill).unwrap().rights, left);
        assert_eq!(tree.mount.attributes(ino).unwrap().modified, Timestamp(7));
    }
    let size = AttributeChange { size: Some(1), ..AttributeChange::default() };
    let refused = tree.mount.set_attributes(tree.root(), &size);
    assert!(matches!(refused, Err(PosixError::IsDirectory)));
    tree.clean();
}

#[test]
fn a_set_group_id_directory_gives_its_group() {
    let tree = Tree::new();
    let directory = tree.directory("d").unwrap().ino;
    let change = AttributeChange { rights: Some(0o2755), gid: Some(77), ..AttributeChange::default() };
    tree.mount.set_attributes(directory, &change).unwrap();
    assert_eq!((tree.file("d/f").unwrap().gid, tree.file("d/f2").unwrap().rights), (77, 0o755));
    let below = tree.directory("d/e").unwrap();
    assert_eq!((below.gid, below.rights), (77, 0o2755));
    tree.clean();
}

#[test]
fn symbolic_links_are_objects_with_their_target() {
    let tree = Tree::new();
    for (name, len) in [("short", 5), ("long", 2000), ("longest", SYMLINK_BYTES_MAX)] {
        let target = vec![b't'; len];
        let made = tree.mount.make_symlink(tree.root(), &plain(name), &target, &NEW).unwrap();
        assert_eq!((made.kind, made.rights, made.size), (FileKind::Symlink, 0o777, len as u64));
        assert_eq!(tree.at(name).unwrap(), made);
        assert_eq!(tree.mount.read_symlink(made.ino).unwrap(), target);
        assert_eq!(tree.world.get("b", name).unwrap(), target);
    }
    let file = tree.file("f").unwrap().ino;
    assert!(matches!(tree.mount.read_symlink(file), Err(PosixError::Invalid)));
    let again = tree.mount.make_symlink(tree.root(), &plain("f"), b"t", &NEW);
    assert!(matches!(again, Err(PosixError::Exists)));
    let long = tree.mount.make_symlink(tree.root(), &plain("x"), &vec![b't'; SYMLINK_BYTES_MAX + 1], &NEW);
    assert!(matches!(long, Err(PosixError::NameTooLong)));
    tree.clean();
}

#[test]
fn special_files_keep_kind_and_device() {
    let tree = Tree::new();
    for (name, kind, device) in [("p", FileKind::Fifo, 0), ("s", FileKind::Socket, 0), ("c", FileKind::CharDevice, 259)]
    {
        let made = tree.mount.make_file(tree.root(), &plain(name), &NEW, kind, device).unwrap();
        assert_eq!((made.kind, made.device, made.rights), (kind, device, 0o755));
        assert_eq!(tree.at(name).unwrap(), made);
    }
    tree.clean();
}

#[test]
fn names_of_one_file_come_and_go() {
    let tree = Tree::new();
    tree.directory("d").unwrap();
    let file = tree.file("a").unwrap().ino;
    let linked = tree.mount.link(file, tree.at("d").unwrap().ino, &plain("b")).unwrap();
    assert_eq!((linked.ino, linked.links), (file, 2));
    assert_eq!(tree.at("a").unwrap(), linked);
    // The name that is remembered goes; the file is found by its record, and can have another name.
    tree.unlink("d/b").unwrap();
    assert_eq!(tree.mount.attributes(file).unwrap().links, 1);
    let change = AttributeChange { rights: Some(0o600), ..AttributeChange::default() };
    assert_eq!(tree.mount.set_attributes(file, &change).unwrap().rights, 0o600);
    tree.mount.link(file, tree.root(), &plain("c")).unwrap();
    tree.rename("c", "a", RenameMode::Replace).unwrap();
    assert_eq!(tree.lines(tree.root()), ["a", "c", "d/"]);
    assert!(matches!(tree.mount.link(file, tree.root(), &plain("a")), Err(PosixError::Exists)));
    let directory = tree.at("d").unwrap().ino;
    assert!(matches!(tree.mount.link(directory, tree.root(), &plain("e")), Err(PosixError::NotPermitted)));
    tree.unlink("a").unwrap();
    tree.unlink("c").unwrap();
    assert!(matches!(tree.mount.attributes(file), Err(PosixError::Stale)));
    assert_eq!(tree.mount.statistics().unwrap().files, 0);
    tree.clean();
}

#[test]
fn user_attributes_are_metadata_while_they_fit() {
    let tree = Tree::new();
    let ino = tree.file("f").unwrap().ino;
    set(&tree, ino, "user.colour", b"red", SetXattr::Create).unwrap();
    set(&tree, ino, "user.s3.content-type", b"text/plain", SetXattr::Any).unwrap();
    set(&tree, ino, "user.Upper", b"1", SetXattr::Any).unwrap();
    set(&tree, ino, "trusted.t", b"\0\xff", SetXattr::Any).unwrap();
    assert!(matches!(set(&tree, ino, "user.colour", b"", SetXattr::Create), Err(PosixError::Exists)));
    assert!(matches!(set(&tree, ino, "user.none", b"", SetXattr::Replace), Err(PosixError::NoAttribute)));
    assert!(matches!(set(&tree, ino, "other.none", b"", SetXattr::Any), Err(PosixError::Unsupported)));
    assert_eq!(names(&tree, ino), ["user.s3.content-type", "user.colour", "trusted.t", "user.Upper"]);
    let info = wait(tree.world.volume.head_object("b", "f", &ReadCondition::default())).unwrap();
    assert_eq!(info.headers.get("x-amz-meta-colour").map(String::as_str), Some("red"));
    assert_eq!(info.headers.get("content-type").map(String::as_str), Some("text/plain"));
    // A value that no header can hold, and back.
    let large = vec![b'x'; XATTR_VALUE_BYTES_MAX];
    set(&tree, ino, "user.colour", &large, SetXattr::Replace).unwrap();
    assert_eq!(tree.mount.get_xattr(ino, b"user.colour").unwrap(), large);
    assert_eq!(names(&tree, ino).len(), 4);
    set(&tree, ino, "user.colour", &[b'y'; 2000], SetXattr::Replace).unwrap();
    assert_eq!(tree.mount.get_xattr(ino, b"user.colour").unwrap(), vec![b'y'; 2000]);
    assert_eq!(names(&tree, ino).len(), 4);
    tree.clean();
    tree.mount.remove_xattr(ino, b"user.colour").unwrap();
    tree.mount.remove_xattr(ino, b"user.Upper").unwrap();
    assert!(matches!(tree.mount.remove_xattr(ino, b"user.Upper"), Err(PosixError::NoAttribute)));
    assert_eq!(names(&tree, ino), ["user.s3.content-type", "trusted.t"]);
    let directory = tree.directory("d").unwrap().ino;
    set(&tree, directory, "user.colour", b"red", SetXattr::Any).unwrap();
    assert_eq!(names(&tree, directory), ["user.colour"]);
    tree.unlink("f").unwrap();
    tree.rmdir("d").unwrap();
    tree.clean();
}

#[test]
fn access_lists_and_rights_are_in_step() {
    let tree = Tree::new();
    let ino = tree.file("f").unwrap().ino;
    tree.mount.set_xattr(ino, ACCESS, &named(7, 6, 5, 4, 0), SetXattr::Any, false).unwrap();
    assert_eq!(tree.at("f").unwrap().rights, 0o740);
    let change = AttributeChange { rights: Some(0o6624), ..AttributeChange::default() };
    tree.mount.set_attributes(ino, &change).unwrap();
    assert_eq!(tree.mount.get_xattr(ino, ACCESS).unwrap(), named(6, 6, 5, 2, 4));
    tree.mount.set_xattr(ino, ACCESS, &named(7, 6, 5, 4, 0), SetXattr::Any, true).unwrap();
    assert_eq!(tree.at("f").unwrap().rights, 0o4740);
    // A list that says no more than rights is none.
    tree.mount.set_xattr(ino, ACCESS, &acl(&[(1, 6, 0), (4, 0, 0), (32, 0, 0)]), SetXattr::Any, false).unwrap();
    assert_eq!(tree.at("f").unwrap().rights, 0o4600);
    assert!(matches!(tree.mount.get_xattr(ino, ACCESS), Err(PosixError::NoAttribute)));
    let wrong = tree.mount.set_xattr(ino, ACCESS, b"list", SetXattr::Any, false);
    assert!(matches!(wrong, Err(PosixError::Invalid)));
    let file = tree.mount.set_xattr(ino, DEFAULT, &named(7, 6, 5, 4, 0), SetXattr::Any, false);
    assert!(matches!(file, Err(PosixError::NotPermitted)));
    tree.clean();
}

/// As `cp -a` makes a file: what it has written is not published when it sets owner, times and the list.
#[test]
fn access_lists_and_rights_of_a_file_that_is_being_written_are_in_step() {
    let tree = Tree::new();
    let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
    let (made, handle) = tree.mount.create(tree.root(), &plain("f"), &NewFile { rights: 0o600, ..NEW }, flags).unwrap();
    let change = |rights| AttributeChange { rights, uid: Some(7), ..AttributeChange::default() };
    let list = |value: &[u8], kill| tree.mount.set_xattr(made.ino, ACCESS, value, SetXattr::Any, kill).unwrap();
    let plain_list = acl(&[(1, 6, 0), (4, 4, 0), (32, 4, 0)]);
    tree.mount.write(&handle, 0, b"12345", false).unwrap();
    tree.mount.set_attributes(made.ino, &change(None)).unwrap();
    list(&plain_list, false);
    assert_eq!(tree.at("f").unwrap().rights, 0o644);
    tree.mount.flush(&handle).unwrap();
    let after = tree.at("f").unwrap();
    assert_eq!((after.rights, after.uid), (0o644, 7));
    tree.mount.write(&handle, 0, b"1", false).unwrap();
    list(&named(7, 6, 5, 4, 0), false);
    tree.mount.set_attributes(made.ino, &change(Some(0o2624))).unwrap();
    assert_eq!(tree.mount.get_xattr(made.ino, ACCESS).unwrap(), named(6, 6, 5, 2, 4));
    list(&plain_list, true);
    tree.mount.flush(&handle).unwrap();
    assert_eq!(tree.at("f").unwrap().rights, 0o644);
    assert!(matches!(tree.mount.get_xattr(made.ino, ACCESS), Err(PosixError::NoAttribute)));
    tree.mount.release(handle).unwrap();
    tree.clean();
}

#[test]
fn default_lists_are_inherited_and_the_umask_is_not() {
    let tree = Tree::new();
    let directory = tree.directory("d").unwrap().ino;
    tree.mount.set_xattr(directory, DEFAULT, &named(7, 6, 5, 7, 5), SetXattr::Any, false).unwrap();
    let new = NewFile { rights: 0o666, umask: 0o077, uid: 0, gid: 0 };
    let file = tree.mount.make_file(directory, &plain("f"), &new, FileKind::Regular, 0).unwrap();
    assert_eq!(file.rights, 0o664);
    assert_eq!(tree.mount.get_xattr(file.ino, ACCESS).unwrap(), named(6, 6, 5, 6, 4));
    assert!(matches!(tree.mount.get_xattr(file.ino, DEFAULT), Err(PosixError::NoAttribute)));
    let below = tree.mount.make_directory(directory, &plain("e"), &NewFile { rights: 0o777, ..new }).unwrap();
    assert_eq!(below.rights, 0o775);
    assert_eq!(tree.mount.get_xattr(below.ino, DEFAULT).unwrap(), named(7, 6, 5, 7, 5));
    let link = tree.mount.make_symlink(directory, &plain("l"), b"f", &new).unwrap();
    assert!(tree.mount.list_xattrs(link.ino).unwrap().is_empty());
    tree.mount.remove_xattr(directory, DEFAULT).unwrap();
    let plain_file = tree.mount.make_file(directory, &plain("g"), &new, FileKind::Regular, 0).unwrap();
    assert_eq!(plain_file.rights, 0o600);
    for name in ["f", "l", "g"] {
        tree.unlink(&format!("d/{name}")).unwrap();
    }
    tree.rmdir("d/e").unwrap();
    tree.rmdir("d").unwrap();
    tree.clean();
}

#[test]
fn an_open_file_shows_what_was_written() {
    let tree = Tree::new();
    let flags = OpenFlags { read: true, write: true, exclusive: true, ..OpenFlags::default() };
    let (made, handle) = tree.mount.create(tree.root(), &plain("f"), &NEW, flags).unwrap();
    assert!(matches!(tree.mount.create(tree.root(), &plain("f"), &NEW, flags), Err(PosixError::Exists)));
    tree.mount.write(&handle, 0, b"12345", false).unwrap();
    assert_eq!((tree.at("f").unwrap().size, made.size), (5, 0));
    let change = AttributeChange { rights: Some(0o600), ..AttributeChange::default() };
    assert_eq!(tree.mount.set_attributes(made.ino, &change).unwrap().rights, 0o600);
    set(&tree, made.ino, "user.colour", b"red", SetXattr::Any).unwrap();
    tree.mount.flush(&handle).unwrap();
    assert_eq!(tree.world.get("b", "f").unwrap(), b"12345");
    assert_eq!(names(&tree, made.ino), ["user.colour"]);
    let size =
        AttributeChange { size: Some(2), modified: Some(SetTime::At(Timestamp(9))), ..AttributeChange::default() };
    let after = tree.mount.set_attributes(made.ino, &size).unwrap();
    assert_eq!((after.size, after.modified, after.rights), (2, Timestamp(9), 0o600));
    tree.rename("f", "g", RenameMode::Replace).unwrap();
    assert_eq!(tree.at("g").unwrap().size, 2);
    tree.unlink("g").unwrap();
    assert_eq!(tree.mount.attributes(made.ino).unwrap().links, 0);
    assert_eq!(tree.mount.set_attributes(made.ino, &change).unwrap().links, 0);
    tree.mount.release(handle).unwrap();
    tree.clean();
    tree.file("h").unwrap();
    let shared = OpenFlags { exclusive: false, ..flags };
    tree.mount.release(tree.mount.create(tree.root(), &plain("h"), &NEW, shared).unwrap().1).unwrap();
    tree.directory("d").unwrap();
    assert!(matches!(tree.mount.create(tree.root(), &plain("d"), &NEW, shared), Err(PosixError::IsDirectory)));
    tree.clean();
}

#[test]
fn a_removed_directory_shows_its_attributes_while_it_is_known() {
    let tree = Tree::new();
    let chmod = AttributeChange { rights: Some(0o700), ..AttributeChange::default() };
    let removed = tree.directory("d").unwrap().ino;
    tree.mount.set_attributes(removed, &chmod).unwrap();
    let open = tree.mount.open_directory(removed).unwrap();
    tree.rmdir("d").unwrap();
    let replaced = tree.directory("e").unwrap().ino;
    tree.directory("f").unwrap();
    tree.rename("f", "e", RenameMode::Replace).unwrap();
    for (ino, rights) in [(removed, 0o700), (replaced, 0o755)] {
        let found = tree.mount.attributes(ino).unwrap();
        assert_eq!((found.ino, found.links, found.rights, found.kind), (ino, 0, rights, FileKind::Directory));
    }
    tree.mount.read_directory(&open, 0, true, &mut |item| panic!("{item:?} in a directory that is gone")).unwrap();
    let chmod = AttributeChange { rights: Some(0o711), ..AttributeChange::default() };
    assert_eq!(tree.mount.set_attributes(removed, &chmod).unwrap().rights, 0o711);
    assert_eq!(tree.mount.attributes(removed).unwrap().rights, 0o711);
    tree.mount.forget(removed, 1);
    assert!(matches!(tree.mount.attributes(removed), Err(PosixError::Stale)));
    tree.clean();
}
