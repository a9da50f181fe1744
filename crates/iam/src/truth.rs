//! Three-valued logic: true, false, or unknown.
//!
//! Why:        an unknown condition must not allow and must not lift a deny; two truth values cannot express that.
//! Invariants: T1 Kleene's logic: unknown stays unknown unless the other operand decides.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    Yes,
    No,
    Unknown,
}

impl Truth {
    pub(crate) fn and(self, other: Truth) -> Truth {
        match (self, other) {
            (Truth::No, _) | (_, Truth::No) => Truth::No,
            (Truth::Yes, Truth::Yes) => Truth::Yes,
            _ => Truth::Unknown,
        }
    }

    pub(crate) fn or(self, other: Truth) -> Truth {
        match (self, other) {
            (Truth::Yes, _) | (_, Truth::Yes) => Truth::Yes,
            (Truth::No, Truth::No) => Truth::No,
            _ => Truth::Unknown,
        }
    }

    /// Whether one of them holds; false for none.
    pub(crate) fn any(all: impl Iterator<Item = Truth>) -> Truth {
        all.fold(Truth::No, Truth::or)
    }

    /// Whether all of them hold; true for none.
    pub(crate) fn all(all: impl Iterator<Item = Truth>) -> Truth {
        all.fold(Truth::Yes, Truth::and)
    }
}

impl std::ops::Not for Truth {
    type Output = Truth;

    fn not(self) -> Truth {
        match self {
            Truth::Yes => Truth::No,
            Truth::No => Truth::Yes,
            Truth::Unknown => Truth::Unknown,
        }
    }
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Truth {
        if holds { Truth::Yes } else { Truth::No }
    }
}
