//! Contents of files: texts that tell which writes they are of.
//!
//! What:       a write has a name of seven letters. A short content is the name; a long one is the name and a semicolon, repeated, or
//!             another long content of which some units were replaced.
//! Examples:   `m0-0001`, `m0-0001;*50`, `m0-0001;*20 m1-0007;*10 m0-0001;*20`. A content that is a mixture of others shows that.

use std::ops::Range;

/// Of a name and its semicolon.
const UNIT: usize = 8;

/// What a write does.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) name: String,
    /// Units; none: it is short.
    pub(crate) units: usize,
    /// These units of what is there are replaced, if that is long enough.
    pub(crate) patch: Option<Range<usize>>,
}

/// What a step of a write to an open file does.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    pub(crate) name: String,
    /// Units at the end.
    pub(crate) units: usize,
    /// These units are replaced, if the file is long enough.
    pub(crate) patch: Option<Range<usize>>,
    /// It becomes so long, if it is longer, and its first unit is replaced.
    pub(crate) cut: Option<usize>,
}

/// Units of a file; one that would be longer is begun anew.
const UNITS_MAX: usize = 240;

/// What is written where, and what the file then has.
pub(crate) struct Written {
    pub(crate) offset: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) whole: Vec<u8>,
}

impl Written {
    /// All of a file.
    pub(crate) fn all(bytes: Vec<u8>) -> Written {
        Written { offset: 0, whole: bytes.clone(), bytes }
    }
}

impl Draft {
    pub(crate) fn over(&self, seen: &[u8]) -> Written {
        let unit = format!("{};", self.name);
        let patch = self.patch.clone().filter(|patch| patch.end * UNIT <= seen.len());
        match patch {
            Some(patch) => {
                let (offset, bytes) = (patch.start * UNIT, unit.repeat(patch.len()).into_bytes());
                let mut whole = seen.to_vec();
                whole[offset..offset + bytes.len()].copy_from_slice(&bytes);
                Written { offset, bytes, whole }
            }
            None if self.units == 0 => Written::all(self.name.clone().into_bytes()),
            None => Written::all(unit.repeat(self.units).into_bytes()),
        }
    }
}

impl Growth {
    pub(crate) fn over(&self, seen: &[u8]) -> Written {
        let unit = format!("{};", self.name).into_bytes();
        let is_long = seen.len().is_multiple_of(UNIT);
        if let Some(cut) = self.cut.filter(|cut| is_long && cut * UNIT < seen.len()) {
            let mut whole = seen[..cut * UNIT].to_vec();
            whole[..UNIT].copy_from_slice(&unit);
            return Written { offset: 0, bytes: unit, whole };
        }
        let patch = self.patch.clone().filter(|patch| is_long && patch.end * UNIT <= seen.len());
        let end = if is_long && seen.len() / UNIT + self.units <= UNITS_MAX { seen.len() } else { 0 };
        let (offset, bytes, mut whole) = match patch {
            Some(patch) => (patch.start * UNIT, unit.repeat(patch.len()), seen.to_vec()),
            None => (end, unit.repeat(self.units), seen[..end].to_vec()),
        };
        whole.resize(whole.len().max(offset + bytes.len()), 0);
        whole[offset..offset + bytes.len()].copy_from_slice(&bytes);
        Written { offset, bytes, whole }
    }
}

/// A content, as people read it and the oracle knows it.
pub(crate) fn named(bytes: &[u8]) -> String {
    let mut runs: Vec<(&[u8], usize)> = Vec::new();
    for unit in bytes.chunks(UNIT) {
        match runs.last_mut().filter(|(last, _)| *last == unit) {
            Some((_, count)) => *count += 1,
            None => runs.push((unit, 1)),
        }
    }
    let shown = runs.into_iter().map(|(unit, count)| match (String::from_utf8_lossy(unit), count) {
        (text, 1) => text.into_owned(),
        (text, count) => format!("{text}*{count}"),
    });
    shown.collect::<Vec<_>>().join(" ")
}
