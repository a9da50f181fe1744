//! What one process asks another one about its store, and the answers.
//!
//! Layout:     a question, in a header: 1, kind, then numbers of eight bytes, big-endian: store, segment, offset, length and checksum of the
//!             run, skip and length of the extent, skip and length of what is read. To write, the run is where the bytes go and
//!             how many the request has as its body; its checksum is the kind of the segment, the skip of the
//!             extent how long the copy is before that, and the other skip 1 if they are to be durable. To punch, and of a file, the run
//!             is the range.
//!             The answer to a read has the bytes, with their CRC-32C in a header, that of a file fewer at its end; to a state kind, length
//!             and whether it is open, a byte, eight and one; to a write the generation of the store, eight bytes; to an order to mend how
//!             many runs were bad and how many are, eight bytes each.
//! Invariants: Q1 a question has one form and one length, and the request has as many bytes as it says, so nothing is overlooked.

use margay_segment::{Extent, Kind, Run, SegmentId, SegmentInfo, StoreNumber};

/// Where questions are sent to.
pub const PATH: &str = "/store";
/// Header with the question, in hexadecimal digits, as are the signatures.
pub(crate) const QUESTION: &str = "x-margay-question";
/// Header with the signature of the question.
pub(crate) const SIGNATURE: &str = "x-margay-signature";
/// Header with the signature of the question and the bytes that it sends, if it sends any.
pub(crate) const BYTES_SIGNATURE: &str = "x-margay-bytes-signature";
/// Header with the CRC-32C of the answer's bytes, as a decimal number.
pub(crate) const CHECKSUM: &str = "x-margay-crc32c";
/// Header with what kind of failure an answer tells.
pub(crate) const FAILURE: &str = "x-margay-failure";
pub(crate) const MISSING: &str = "missing";
pub(crate) const CORRUPT: &str = "corrupt";
pub(crate) const OTHER_STORE: &str = "other-store";
pub(crate) const REFUSED: &str = "refused";
/// Longest write that is one question, in bytes.
pub(crate) const WRITE_BYTES_MAX: u64 = 4 << 20;
/// Longest read that is one question, in bytes.
pub(crate) const READ_BYTES_MAX: u64 = 4 << 20;

const VERSION: u8 = 1;
/// The kind of a question that bytes follow.
const WRITE: u8 = 3;
const NUMBERS: usize = 9;
const QUESTION_BYTES: usize = 2 + 8 * NUMBERS;
const STATE_BYTES: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read {
        extent: Extent,
        skip: u64,
        len: u64,
    },
    Verify(Extent),
    State(SegmentId),
    /// So many bytes, which follow the question, go into a copy.
    Write {
        id: SegmentId,
        kind: Kind,
        offset: u64,
        len: u64,
        durably: bool,
        /// How long the copy is at least before that; else what it had is lost.
        before: u64,
    },
    /// Nothing is added to a copy any more.
    Seal(SegmentId),
    /// A copy is needed no more.
    Remove(SegmentId),
    /// Nothing refers to this range of a copy any more.
    Punch {
        id: SegmentId,
        offset: u64,
        len: u64,
    },
    /// Bytes of the file as they are, not verified; also of one in quarantine.
    File {
        id: SegmentId,
        offset: u64,
        len: u64,
    },
    /// Kind and length of the file, also of one in quarantine.
    FileState(SegmentId),
    /// What the file lacks is to be fetched from other stores.
    Mend(SegmentId),
}

impl What {
    pub(crate) fn segment(&self) -> SegmentId {
        match self {
            What::Read { extent, .. } | What::Verify(extent) => extent.run.segment,
            What::State(id) | What::Seal(id) | What::Remove(id) | What::FileState(id) | What::Mend(id) => *id,
            What::Write { id, .. } | What::Punch { id, .. } | What::File { id, .. } => *id,
        }
    }
}

impl What {
    /// Bytes that follow the question.
    pub(crate) fn bytes_behind(&self) -> u64 {
        match self {
            What::Write { len, .. } => *len,
            _ => 0,
        }
    }
}

/// Of this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) store: StoreNumber,
    pub(crate) what: What,
}

impl Question {
    pub(crate) fn encode(self) -> Vec<u8> {
        let none = |segment| Extent::whole(Run { segment, offset: 0, len: 0, crc: 0 });
        let range = |segment, offset, len| Extent { run: Run { segment, offset, len, crc: 0 }, skip: 0, len: 0 };
        let (kind, extent, skip, len) = match self.what {
            What::Read { extent, skip, len } => (0, extent, skip, len),
            What::Verify(extent) => (1, extent, 0, 0),
            What::State(segment) => (2, none(segment), 0, 0),
            What::Write { id, kind, offset, len, durably, before } => {
                let run = Run { segment: id, offset, len, crc: kind_number(kind).into() };
                (WRITE, Extent { run, skip: before, len: 0 }, durably.into(), 0)
            }
            What::Seal(segment) => (4, none(segment), 0, 0),
            What::Remove(segment) => (5, none(segment), 0, 0),
            What::Punch { id, offset, len } => (6, range(id, offset, len), 0, 0),
            What::File { id, offset, len } => (7, range(id, offset, len), 0, 0),
            What::FileState(segment) => (8, none(segment), 0, 0),
            What::Mend(segment) => (9, none(segment), 0, 0),
        };
        let Extent { run, skip: extent_skip, len: extent_len } = extent;
        let mut bytes = Vec::with_capacity(QUESTION_BYTES);
        bytes.extend([VERSION, kind]);
        let numbers: [u64; NUMBERS] = [
            self.store.0.into(),
            run.segment.0,
            run.offset,
            run.len,
            run.crc.into(),
            extent_skip,
            extent_len,
            skip,
            len,
        ];
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
        bytes
    }

    /// `None`: it is none, or of a newer program, or asks for what no extent has.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Question> {
        let (&[VERSION, kind], numbers) = bytes.split_first_chunk::<2>()? else { return None };
        let (chunks, rest) = numbers.as_chunks::<8>();
        let numbers: [u64; NUMBERS] =
            chunks.iter().map(|chunk| u64::from_be_bytes(*chunk)).collect::<Vec<_>>().try_into().ok()?;
        let [store, segment, offset, run_len, crc, extent_skip, extent_len, skip, len] = numbers;
        let run = Run { segment: SegmentId(segment), offset, len: run_len, crc: u32::try_from(crc).ok()? };
        let extent = Extent { run, skip: extent_skip, len: extent_len };
        let is_within = |start: u64, len: u64, whole: u64| start.checked_add(len).is_some_and(|end| end <= whole);
        let is_extent = is_within(extent_skip, extent_len, run_len) && is_within(skip, len, extent_len);
        let is_right = rest.is_empty() && (kind == WRITE || is_extent);
        let what = match kind {
            0 if len <= READ_BYTES_MAX => What::Read { extent, skip, len },
            1 => What::Verify(extent),
            2 => What::State(run.segment),
            WRITE if run_len <= WRITE_BYTES_MAX && skip <= 1 && (extent_len, len) == (0, 0) => {
                let kind = u8::try_from(run.crc).ok().and_then(kind_of)?;
                What::Write { id: run.segment, kind, offset, len: run_len, durably: skip == 1, before: extent_skip }
            }
            4 => What::Seal(run.segment),
            5 => What::Remove(run.segment),
            6 => What::Punch { id: run.segment, offset, len: run_len },
            7 if run_len <= READ_BYTES_MAX => What::File { id: run.segment, offset, len: run_len },
            8 => What::FileState(run.segment),
            9 => What::Mend(run.segment),
            _ => return None,
        };
        let question = Question { store: StoreNumber(u16::try_from(store).ok()?), what };
        // Numbers that its kind does not use are 0.
        (is_right && question.encode() == bytes).then_some(question)
    }
}

fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Log => 0,
        Kind::Pack => 1,
        Kind::Raw => 2,
    }
}

fn kind_of(number: u8) -> Option<Kind> {
    Some(match number {
        0 => Kind::Log,
        1 => Kind::Pack,
        2 => Kind::Raw,
        _ => return None,
    })
}

pub(crate) fn encode_state(info: &SegmentInfo) -> Vec<u8> {
    let mut bytes = vec![kind_number(info.kind)];
    bytes.extend_from_slice(&info.len.to_be_bytes());
    bytes.push(info.open.into());
    bytes
}

pub(crate) fn decode_state(id: SegmentId, bytes: &[u8]) -> Option<SegmentInfo> {
    let bytes: &[u8; STATE_BYTES] = bytes.try_into().ok()?;
    let [kind, len @ .., open] = *bytes;
    Some(SegmentInfo { id, kind: kind_of(kind)?, len: u64::from_be_bytes(len), open: open != 0 })
}

/// Runs that were bad, and those that are.
pub(crate) fn encode_mended(bad: u64, left: u64) -> Vec<u8> {
    [bad.to_be_bytes(), left.to_be_bytes()].concat()
}

pub(crate) fn decode_mended(bytes: &[u8]) -> Option<(u64, u64)> {
    let (bad, left) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*bad), u64::from_be_bytes(left.try_into().ok()?)))
}

/// One of each kind, with bounds.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn examples() -> Vec<Question> {
    let run = Run { segment: SegmentId(7 << 40 | 3), offset: 9, len: 100, crc: u32::MAX };
    let extent = Extent { run, skip: 10, len: 90 };
    let (id, kind) = (run.segment, Kind::Raw);
    let all = [
        What::Read { extent, skip: 1, len: 89 },
        What::Verify(extent),
        What::State(id),
        What::Write { id, kind, offset: 1 << 40, len: WRITE_BYTES_MAX, durably: true, before: 1 << 41 },
        What::Write { id, kind: Kind::Pack, offset: 0, len: 1, durably: false, before: 0 },
        What::Seal(id),
        What::Remove(id),
        What::Punch { id, offset: 4096, len: 1 << 30 },
        What::File { id, offset: 1 << 40, len: READ_BYTES_MAX },
        What::FileState(id),
        What::Mend(id),
    ];
    all.map(|what| Question { store: StoreNumber(7), what }).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_states_come_back_and_others_are_none() {
        for question in examples() {
            let bytes = question.encode();
            assert_eq!(bytes.len(), QUESTION_BYTES);
            assert_eq!(Question::decode(&bytes), Some(question));
            for end in 0..bytes.len() {
                assert_eq!(Question::decode(&bytes[..end]), None);
            }
            assert_eq!(Question::decode(&[&bytes[..], &[0]].concat()), None);
        }
        let run = Run { segment: SegmentId(7 << 40 | 3), offset: 9, len: 100, crc: u32::MAX };
        let extent = Extent { run, skip: 10, len: 90 };
        let (id, kind) = (run.segment, Kind::Raw);
        let state = Question { store: StoreNumber(7), what: What::State(id) }.encode();
        assert!(Question::decode(&state).is_some());
        assert_eq!(
            Question::decode(&[&state[..QUESTION_BYTES - 1], &[1]].concat()),
            None,
            "a number that it does not use"
        );
        for (extent, skip, len) in [
            (extent, 2, 89),
            (extent, u64::MAX, 2),
            (Extent { len: 91, ..extent }, 0, 0),
            (Extent::whole(Run { len: 1 << 40, ..run }), 0, READ_BYTES_MAX + 1),
        ] {
            let question = Question { store: StoreNumber(7), what: What::Read { extent, skip, len } };
            assert_eq!(Question::decode(&question.encode()), None, "{question:?}");
        }
        let write = What::Write { id, kind, offset: 0, len: WRITE_BYTES_MAX + 1, durably: false, before: 0 };
        assert_eq!(Question::decode(&Question { store: StoreNumber(7), what: write }.encode()), None);
        let file = What::File { id, offset: 0, len: READ_BYTES_MAX + 1 };
        assert_eq!(Question::decode(&Question { store: StoreNumber(7), what: file }.encode()), None);
        assert_eq!(decode_mended(&encode_mended(7, u64::MAX)), Some((7, u64::MAX)));
        assert!(decode_mended(&[0; 15]).is_none() && decode_mended(&[0; 17]).is_none());
        for kind in [Kind::Log, Kind::Pack, Kind::Raw] {
            let info = SegmentInfo { id: run.segment, kind, len: 1 << 33, open: kind == Kind::Pack };
            let back = decode_state(run.segment, &encode_state(&info));
            assert!(back.is_some_and(|back| (back.kind, back.len, back.open) == (info.kind, info.len, info.open)));
        }
        assert!(decode_state(run.segment, &[3; STATE_BYTES]).is_none() && decode_state(run.segment, &[]).is_none());
    }
}
