//! Compact, bounds-checked encoding of the fields of a stored value.
//!
//! Why:        values are small and many, so numbers take the bytes they need; stored bytes are not trusted.
//! Layout:     varint = little-endian groups of 7 bits, the top bit set on all but the last; signed numbers
//!             are zigzag varints; text and bytes have a varint length before them.
//! Invariants: every read is total: it gives a value or `Damaged`, on any bytes (`decoders_are_total`).

use margay_env::Timestamp;

/// Stored bytes that do not decode, and which field was at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored value does not decode: {0}")]
pub struct Damaged(pub &'static str);

#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn new(capacity: usize) -> Writer {
        Writer { bytes: Vec::with_capacity(capacity) }
    }

    /// Bytes written so far.
    pub fn position(&self) -> usize {
        self.bytes.len()
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    pub fn signed(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    pub fn time(&mut self, time: Timestamp) {
        self.signed(time.0);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }
}

/// Bytes of the longest number: 64 bits, 7 in each.
const VARINT_BYTES_MAX: usize = 10;

#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Damaged("cut short"))?;
        self.rest = rest;
        Ok(head)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.raw(N)?.try_into().map_err(|_| Damaged("cut short"))
    }

    pub fn byte(&mut self) -> Result<u8, Damaged> {
        Ok(self.array::<1>()?[0])
    }

    pub fn varint(&mut self) -> Result<u64, Damaged> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if index + 1 == VARINT_BYTES_MAX && bits > 1 {
                return Err(Damaged("number too large"));
            }
            value |= bits << (7 * index);
            if *byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(Damaged(if self.rest.len() < VARINT_BYTES_MAX { "cut short" } else { "number too long" }))
    }

    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Damaged> {
        T::try_from(self.varint()?).map_err(|_| Damaged("number too large"))
    }

    pub fn signed(&mut self) -> Result<i64, Damaged> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub fn time(&mut self) -> Result<Timestamp, Damaged> {
        Ok(Timestamp(self.signed()?))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let len = self.small::<usize>()?;
        self.raw(len)
    }

    pub fn text(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damaged("text is not UTF-8"))
    }

    /// The remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// All that is left, as text.
    pub fn text_to_end(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.rest()).map_err(|_| Damaged("text is not UTF-8"))
    }

    /// The first byte of every value: which layout follows.
    pub fn layout(&mut self, supported: u8) -> Result<(), Damaged> {
        if self.byte()? == supported { Ok(()) } else { Err(Damaged("unknown layout")) }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn end(self) -> Result<(), Damaged> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damaged("trailing bytes")) }
    }
}
