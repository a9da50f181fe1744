//! POSIX access control lists in the kernel's encoding (`system.posix_acl_*`).
//!
//! Why:        the kernel checks access by them; the tree must keep lists, permissions and inheritance consistent.
//! Layout:     `u32` version 2, then entries: `u16` tag, `u16` permissions, `u32` id, all little-endian.
//! Invariants: L1 a stored list is valid: one entry each for owner, group and others, in the kernel's order, and a mask
//!                if a user or group is named. A list without named entries or mask is equivalent to the permissions
//!                and is not stored as an access list.
//! Not here:   rows (xattr), checking access (the kernel).

/// The xattr with a file's own list.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The xattr of a directory with the list that new entries inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

const USER_OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OWNER: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Read, write, execute.
const PERMISSIONS: u16 = 7;
/// The nine mode bits that a list represents.
pub(crate) const RIGHTS_BITS: u32 = 0o777;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// `None` when the bytes are not a valid list. An empty list is valid: it stands for none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Acl> {
        let (version, rest) = bytes.split_first_chunk::<4>()?;
        let (chunks, tail) = rest.as_chunks::<ENTRY_BYTES>();
        if u32::from_le_bytes(*version) != VERSION || !tail.is_empty() {
            return None;
        }
        let entry = |[tag0, tag1, perm0, perm1, id @ ..]: &[u8; ENTRY_BYTES]| AclEntry {
            tag: u16::from_le_bytes([*tag0, *tag1]),
            permissions: u16::from_le_bytes([*perm0, *perm1]),
            id: u32::from_le_bytes(*id),
        };
        let acl = Acl { entries: chunks.iter().map(entry).collect() };
        (acl.entries.is_empty() || acl.valid()).then_some(acl)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    fn valid(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let known = |entry: &AclEntry| {
            [USER_OWNER, USER, GROUP_OWNER, GROUP, MASK, OTHER].contains(&entry.tag)
                && entry.permissions & !PERMISSIONS == 0
        };
        let once = [USER_OWNER, GROUP_OWNER, OTHER].iter().all(|tag| count(*tag) == 1) && count(MASK) <= 1;
        let named = count(USER) + count(GROUP) > 0;
        self.entries.iter().all(known)
            && self.entries.is_sorted_by_key(|entry| entry.tag)
            && once
            && (!named || count(MASK) == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it says more than the permissions can.
    pub(crate) fn is_extended(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.tag, USER | GROUP | MASK))
    }

    /// The entry that the group bits of the permissions represent.
    fn group_tag(&self) -> u16 {
        if self.entries.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OWNER }
    }

    /// The entries that permissions represent, each with the position of its bits.
    fn shown(&mut self) -> impl Iterator<Item = (&mut AclEntry, u32)> {
        let group = self.group_tag();
        self.entries.iter_mut().filter_map(move |entry| match entry.tag {
            USER_OWNER => Some((entry, 6)),
            OTHER => Some((entry, 0)),
            tag if tag == group => Some((entry, 3)),
            _ => None,
        })
    }

    /// The nine mode bits that this list shows as permissions.
    pub(crate) fn rights(&self) -> u32 {
        self.clone().shown().fold(0, |rights, (entry, shift)| rights | u32::from(entry.permissions) << shift)
    }

    /// Follows a `chmod`.
    pub(crate) fn set_rights(&mut self, rights: u32) {
        self.shown().for_each(|(entry, shift)| entry.permissions = (rights >> shift) as u16 & PERMISSIONS);
    }

    /// This default list as the access list of a new entry with these permissions.
    pub(crate) fn inherited(&self, rights: u32) -> Acl {
        let mut acl = self.clone();
        acl.set_rights(self.rights() & rights);
        acl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        Acl {
            entries: entries
                .iter()
                .map(|(tag, permissions, id)| AclEntry { tag: *tag, permissions: *permissions, id: *id })
                .collect(),
        }
    }

    fn extended() -> Acl {
        list(&[
            (USER_OWNER, 7, u32::MAX),
            (USER, 6, 5),
            (GROUP_OWNER, 5, u32::MAX),
            (MASK, 7, u32::MAX),
            (OTHER, 1, u32::MAX),
        ])
    }

    #[test]
    fn the_mask_is_the_group_of_the_rights() {
        let mut acl = extended();
        assert_eq!(acl.rights(), 0o771);
        acl.set_rights(0o640);
        assert_eq!((acl.rights(), acl.entries[2].permissions, acl.entries[3].permissions), (0o640, 5, 4));
        let mut plain = list(&[(USER_OWNER, 7, 0), (GROUP_OWNER, 5, 0), (OTHER, 1, 0)]);
        assert!(!plain.is_extended() && acl.is_extended());
        plain.set_rights(0o604);
        assert_eq!(plain.rights(), 0o604);
    }

    #[test]
    fn inheriting_takes_rights_away_only() {
        assert_eq!(extended().inherited(0o666).rights(), 0o660);
        assert_eq!(extended().inherited(0o666).entries[1], extended().entries[1]);
    }

    #[test]
    fn only_valid_lists_are_read() {
        assert_eq!(Acl::decode(&extended().encode()), Some(extended()));
        assert!(Acl::decode(&VERSION.to_le_bytes()).unwrap().is_empty());
        let wrong = [
            list(&[(USER_OWNER, 7, 0), (GROUP_OWNER, 5, 0)]),
            list(&[(USER_OWNER, 7, 0), (USER, 5, 1), (GROUP_OWNER, 5, 0), (OTHER, 1, 0)]),
            list(&[(GROUP_OWNER, 5, 0), (USER_OWNER, 7, 0), (OTHER, 1, 0)]),
            list(&[(USER_OWNER, 8, 0), (GROUP_OWNER, 5, 0), (OTHER, 1, 0)]),
            list(&[(USER_OWNER, 7, 0), (USER_OWNER, 7, 0), (GROUP_OWNER, 5, 0), (OTHER, 1, 0)]),
        ];
        assert!(wrong.iter().all(|acl| Acl::decode(&acl.encode()).is_none()));
    }

    proptest::proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            if let Some(acl) = Acl::decode(&bytes) {
                proptest::prop_assert_eq!(acl.encode(), bytes);
            }
        }
    }
}
