//! Write ids: what an object says of the write that made it, in its metadata.
//!
//! Why:        an answer is lost, or the row that noted it. The object then tells whose it is and which state of the file it has, so
//!             that nothing is sent again whose bytes may be gone here: a state that was kept (`fsync=local`) has none of its own
//!             when its object had them.
//! Format:     `VOLUME-FILE-PROCESS.CHANGE-CONTENT.ATTRIBUTES`: the id of the volume, the number of the file, and in hexadecimal the
//!             number of the process; the number of the change, which begins again with each process; and in hexadecimal the
//!             content and the attributes, as `plan::Local` has them. An older one ends before CONTENT.
//! Not here:   which id the rows know (outcome).

use margay_rows::Ino;

use super::Sender;
use crate::plan::PlannedRequest;

impl Sender {
    pub(super) fn write_id(&self, request: &PlannedRequest) -> String {
        let PlannedRequest { file, content, attributes, changed, .. } = request;
        format!("{}{:x}.{changed}-{content:x}.{attributes:x}", self.file_id(Ino(*file)), self.process)
    }

    /// Begins the ids of all writes of a file, in this process and in earlier ones.
    pub(super) fn file_id(&self, ino: Ino) -> String {
        format!("{}-{}-", self.id, ino.0)
    }
}

/// The content and the attributes in the id of a write of one's own; 0 for what it does not tell.
pub(super) fn state_in(write_id: &str) -> (u64, u64) {
    let numbers = write_id.rsplit_once('-').and_then(|(write, state)| {
        // An older id ends with the process and the change.
        let (content, attributes) = state.split_once('.').filter(|_| write.rsplit('-').next().is_some_and(has_dot))?;
        Some((u64::from_str_radix(content, 16).ok()?, u64::from_str_radix(attributes, 16).ok()?))
    });
    numbers.unwrap_or_default()
}

fn has_dot(text: &str) -> bool {
    text.contains('.')
}

#[cfg(test)]
mod tests {
    use super::state_in;

    #[test]
    fn an_id_tells_the_state_if_it_has_one() {
        assert_eq!(state_in("0f3a-12-9c.7-1f.a"), (0x1f, 0xa));
        for other in [
            "",
            "0f3a-12-9c.7",
            "0f3a-12-9c.7-1f",
            "0f3a-12-9c.7-1f.",
            "0f3a-12-9c.7-x.a",
            "-.",
            "1.2-3.4.5",
            "a.b-12-9c.7",
        ] {
            assert_eq!(state_in(other), (0, 0), "{other}");
        }
    }
}
