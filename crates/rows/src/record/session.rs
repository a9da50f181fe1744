//! Records of sessions and leases.
//!
//! Layout:     session: 2, varint beat, varint oldest cursor, text host, varint process id, text program, text address; lease:
//!             1, varint number of its session (0: none), varint epoch; lease of a mount: 1, varint number of its session,
//!             varint number of the directory, byte flags (1: shared), time, text place; known identities: 1, varint generation
//! Invariants: G1 the beat of a session and the epoch of a lease grow with each put.
//! Not here:   when a session is declared dead (volume).

use margay_env::Timestamp;

use super::wire::{Damaged, Reader, Writer};
use crate::ino::Ino;

const LAYOUT: u8 = 1;
const SESSION_LAYOUT: u8 = 2;
/// Maximum length of the host and of the program name, in bytes; longer names are truncated.
pub const SESSION_NAME_BYTES_MAX: usize = 255;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// Incremented by each beat.
    pub beat: u64,
    /// The process reads no state older than this cursor.
    pub oldest: u64,
    pub host: String,
    pub pid: u32,
    pub program: String,
    /// Where it gives the bytes of its store to other processes; empty: it does not.
    pub address: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The session that holds the lease; 0 if none.
    pub holder: Ino,
    /// Incremented each time the lease is taken.
    pub epoch: u64,
}

/// A mount that writes to a directory of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountLeaseRecord {
    /// The session of its process.
    pub holder: Ino,
    /// The root of the mount.
    pub directory: Ino,
    /// Others may write there too.
    pub shared: bool,
    /// When it was mounted, by the clock of its machine; for people.
    pub since: Timestamp,
    /// The bucket, and the directory with its `/`, as of the mounting; for people.
    pub place: String,
}

/// The newest change of identities that a process decides by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownIdentitiesRecord {
    /// The version of the row that each change puts; 0: none yet.
    pub generation: u64,
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(SESSION_NAME_BYTES_MAX)]
}

impl SessionRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(64);
        writer.byte(SESSION_LAYOUT);
        writer.varint(self.beat);
        writer.varint(self.oldest);
        writer.bytes(cut(&self.host).as_bytes());
        writer.varint(self.pid.into());
        writer.bytes(cut(&self.program).as_bytes());
        writer.bytes(cut(&self.address).as_bytes());
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<SessionRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(SESSION_LAYOUT)?;
        let (beat, oldest) = (reader.varint()?, reader.varint()?);
        let host = reader.text()?.to_owned();
        let (pid, program, address) = (reader.small()?, reader.text()?.to_owned(), reader.text()?.to_owned());
        let record = SessionRecord { beat, oldest, host, pid, program, address };
        reader.end()?;
        Ok(record)
    }
}

impl LeaseRecord {
    pub fn encode(self) -> Vec<u8> {
        let mut writer = Writer::new(16);
        writer.byte(LAYOUT);
        writer.varint(self.holder.0);
        writer.varint(self.epoch);
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<LeaseRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let record = LeaseRecord { holder: Ino(reader.varint()?), epoch: reader.varint()? };
        reader.end()?;
        Ok(record)
    }
}

impl KnownIdentitiesRecord {
    pub fn encode(self) -> Vec<u8> {
        let mut writer = Writer::new(16);
        writer.byte(LAYOUT);
        writer.varint(self.generation);
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<KnownIdentitiesRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let record = KnownIdentitiesRecord { generation: reader.varint()? };
        reader.end()?;
        Ok(record)
    }
}

impl MountLeaseRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(32 + self.place.len());
        writer.byte(LAYOUT);
        writer.varint(self.holder.0);
        writer.varint(self.directory.0);
        writer.byte(self.shared.into());
        writer.time(self.since);
        writer.bytes(self.place.as_bytes());
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<MountLeaseRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let (holder, directory) = (Ino(reader.varint()?), Ino(reader.varint()?));
        let shared = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return Err(Damaged("unknown flags of a mount's lease")),
        };
        let record =
            MountLeaseRecord { holder, directory, shared, since: reader.time()?, place: reader.text()?.to_owned() };
        reader.end()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_leases_round_trip() {
        let (host, program, address) = ("h".repeat(255), "p".to_owned(), "h:1".to_owned());
        let session = SessionRecord { beat: 300, oldest: 7, host, pid: 9, program, address };
        assert_eq!(SessionRecord::decode(&session.encode()), Ok(session.clone()));
        let long = SessionRecord { host: "ä".repeat(300), ..session };
        assert_eq!(SessionRecord::decode(&long.encode()).map(|found| found.host.len()), Ok(254));
        let lease = LeaseRecord { holder: Ino(1 << 40), epoch: 3 };
        assert_eq!(LeaseRecord::decode(&lease.encode()), Ok(lease));
        let place = "photos/2026/".to_owned();
        let mount = MountLeaseRecord { holder: Ino(9), directory: Ino(7), shared: true, since: Timestamp(-5), place };
        assert_eq!(MountLeaseRecord::decode(&mount.encode()), Ok(mount));
        assert!(LeaseRecord::decode(&[1, 0]).is_err() && SessionRecord::decode(&[2]).is_err());
    }
}
