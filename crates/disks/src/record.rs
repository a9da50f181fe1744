//! The list of members of a volume, and the mark in each member's directory.
//!
//! Why:        a directory that missed something must never be taken for the truth, so who is out stands in the others.
//! Layout:     docs/format/disks.md.
//! Invariants: R1 a list with a larger generation is newer; what is written never has a smaller one.
//!             R2 a list is replaced as a whole, and its checksum is right.
//! Not here:   who decides that a member is out (members).

use std::path::PathBuf;

use margay_env::checksum_line;

const RECORD_MAGIC: &str = "margay disks, format 1";
const IDENTITY_MAGIC: &str = "margay disk, format 1";
/// Longest path of a member, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 4096;
/// Maximum size of either file, in bytes: all members with the longest paths.
pub(crate) const BYTES_MAX: u64 = (MEMBERS_MAX * (PATH_BYTES_MAX + 128) + 1024) as u64;
/// Most members of a volume.
pub const MEMBERS_MAX: usize = 64;

/// How far a directory is trusted in one of its roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It has no such role.
    #[default]
    None,
    /// All of its files are right.
    In,
    /// It gets all that is written, and earlier files are being copied.
    Filling,
    /// It is read and written, and its files move to others.
    Leaving,
    /// It lacks something: neither read nor written until it was filled again.
    Out,
}

const STATES: [(State, &str); 5] = [
    (State::None, "none"),
    (State::In, "in"),
    (State::Filling, "filling"),
    (State::Leaving, "leaving"),
    (State::Out, "out"),
];

impl State {
    pub fn name(self) -> &'static str {
        STATES.iter().find(|(state, _)| *state == self).map_or("none", |(_, name)| name)
    }

    fn parse(name: &str) -> Option<State> {
        STATES.iter().find(|(_, known)| *known == name).map(|(state, _)| *state)
    }

    /// It gets what is written.
    pub(crate) fn is_living(self) -> bool {
        matches!(self, State::In | State::Filling | State::Leaving)
    }
}

/// One directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: u64,
    pub(crate) metadata: State,
    pub(crate) data: State,
    /// Generation of the list that first said that it is out; 0 if it is not.
    pub(crate) left: u64,
    /// It is out because of an error, and not only because it was not there.
    pub(crate) failed: bool,
    pub(crate) root: PathBuf,
}

/// All directories of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) volume: u128,
    pub(crate) generation: u64,
    /// Everything was closed in order: copies are equal.
    pub(crate) clean: bool,
    pub(crate) copies: u32,
    pub(crate) members: Vec<Listed>,
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let clean = if self.clean { "yes" } else { "no" };
        let mut text = format!(
            "{RECORD_MAGIC}\nvolume {:032x}\ngeneration {}\nclean {clean}\ncopies {}\n",
            self.volume, self.generation, self.copies
        );
        for Listed { id, metadata, data, root, .. } in &self.members {
            let (metadata, data) = (metadata.name(), data.name());
            text.push_str(&format!("member {id:016x} {metadata} {data} {}\n", root.display()));
        }
        for Listed { id, left, failed, .. } in self.members.iter().filter(|member| member.left > 0) {
            let why = if *failed { "failed" } else { "absent" };
            text.push_str(&format!("left {id:016x} {left} {why}\n"));
        }
        checksum_line::with(text.into_bytes())
    }

    /// The error says what is wrong with the bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Record, String> {
        let text = checked(bytes)?;
        let mut lines = text.lines();
        if lines.next() != Some(RECORD_MAGIC) {
            return Err("it is of another format".to_owned());
        }
        let mut field = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name)).and_then(|rest| rest.strip_prefix(' '));
            line.ok_or_else(|| format!("it has no line {name:?}"))
        };
        let volume = hex(field("volume")?, 32).ok_or("its volume is no number")?;
        let generation = field("generation")?.parse().map_err(|_| "its generation is no number")?;
        let clean = field("clean")? == "yes";
        let copies = field("copies")?.parse().ok().filter(|copies| (1..=MEMBERS_MAX as u32).contains(copies));
        let copies = copies.ok_or("its number of copies is impossible")?;
        let (lefts, members): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("left "));
        let members: Option<Vec<Listed>> = members.into_iter().map(listed).collect();
        let mut members = members.filter(|members| members.len() <= MEMBERS_MAX).ok_or("a member cannot be read")?;
        for line in lefts {
            let (id, left, failed) = left_at(line).ok_or("it does not say when a member left")?;
            let member = members.iter_mut().find(|member| member.id == id);
            let member = member.ok_or("somebody left who is no member")?;
            (member.left, member.failed) = (left, failed);
        }
        Ok(Record { volume, generation, clean, copies, members })
    }
}

fn listed(line: &str) -> Option<Listed> {
    let mut words = line.splitn(5, ' ');
    let is_member = words.next()? == "member";
    let id = u64::try_from(hex(words.next()?, 16)?).ok()?;
    let (metadata, data) = (State::parse(words.next()?)?, State::parse(words.next()?)?);
    let root = PathBuf::from(words.next()?);
    is_member.then_some(Listed { id, metadata, data, left: 0, failed: false, root })
}

fn left_at(line: &str) -> Option<(u64, u64, bool)> {
    let [id, left, why @ ("absent" | "failed")] = line.strip_prefix("left ")?.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    Some((u64::try_from(hex(id, 16)?).ok()?, left.parse().ok().filter(|left| *left > 0)?, why == "failed"))
}

fn hex(digits: &str, count: usize) -> Option<u128> {
    let is_hex =
        digits.len() == count && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if is_hex { u128::from_str_radix(digits, 16).ok() } else { None }
}

fn checked(bytes: &[u8]) -> Result<&str, String> {
    let checked = checksum_line::check(bytes).map_err(|error| error.to_string())?;
    if !checked.has_checksum {
        return Err("its checksum is missing".to_owned());
    }
    std::str::from_utf8(checked.text).map_err(|_| "it is no text".to_owned())
}

/// What the mark in a member's directory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) volume: u128,
    pub(crate) member: u64,
}

impl Identity {
    pub(crate) fn encode(&self) -> Vec<u8> {
        checksum_line::with(
            format!("{IDENTITY_MAGIC}\nvolume {:032x}\nmember {:016x}\n", self.volume, self.member).into_bytes(),
        )
    }

    /// The error says what is wrong with the bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Identity, String> {
        let text = checked(bytes)?;
        let lines: Vec<&str> = text.lines().collect();
        let [IDENTITY_MAGIC, volume, member] = lines[..] else { return Err("it is of another format".to_owned()) };
        let volume = volume.strip_prefix("volume ").and_then(|digits| hex(digits, 32));
        let member = member.strip_prefix("member ").and_then(|digits| hex(digits, 16));
        let member = member.and_then(|member| u64::try_from(member).ok());
        volume.zip(member).map(|(volume, member)| Identity { volume, member }).ok_or("a number is wrong".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let member = |id, metadata, data, root: &str| Listed {
            id,
            metadata,
            data,
            left: if data == State::Out { 6 } else { 0 },
            failed: data == State::Out,
            root: root.into(),
        };
        Record {
            volume: 0xabc,
            generation: 7,
            clean: false,
            copies: 2,
            members: vec![
                member(1, State::In, State::Leaving, "/ssd"),
                member(2, State::None, State::Out, "/disk with spaces"),
            ],
        }
    }

    #[test]
    fn the_longest_list_fits() {
        let root = PathBuf::from("/".repeat(PATH_BYTES_MAX));
        let (metadata, data) = (State::Filling, State::Leaving);
        let member = Listed { id: u64::MAX, metadata, data, left: u64::MAX, failed: true, root };
        let members = vec![member; MEMBERS_MAX];
        let longest = Record { volume: u128::MAX, generation: u64::MAX, clean: false, copies: 64, members };
        assert!(longest.encode().len() as u64 <= BYTES_MAX);
        assert!(Record::decode(&longest.encode()).is_ok());
    }

    #[test]
    fn what_is_written_is_read_and_no_flipped_bit_is_believed() {
        let bytes = record().encode();
        assert_eq!(Record::decode(&bytes), Ok(record()));
        let identity = Identity { volume: 5, member: 6 };
        assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&flipped).is_err(), "bit {bit}");
        }
        assert!(Identity::decode(&bytes).is_err() && Record::decode(b"").is_err());
    }
}
