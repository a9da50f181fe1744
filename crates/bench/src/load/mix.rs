//! Which operations a load does, by their shares.

use std::fmt;
use std::str::FromStr;

use crate::weighted::Weighted;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Put,
    Get,
    Head,
    List,
    Delete,
}

impl Operation {
    pub const ALL: [Operation; 5] =
        [Operation::Put, Operation::Get, Operation::Head, Operation::List, Operation::Delete];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Head => "head",
            Operation::List => "list",
            Operation::Delete => "delete",
        }
    }

    /// The operation of this name.
    pub fn named(name: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

/// Shares of the operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(Weighted<Operation>);

impl Mix {
    /// The operation for a number below [`Mix::total`].
    pub fn pick(&self, number: u64) -> Operation {
        *self.0.pick(number)
    }

    pub fn total(&self) -> u64 {
        self.0.total()
    }

    /// Whether an operation has a share.
    pub fn has(&self, operation: Operation) -> bool {
        self.0.parts().iter().any(|&(named, share)| named == operation && share > 0)
    }

    /// Whether objects must be there before the load begins.
    pub fn reads(&self) -> bool {
        [Operation::Get, Operation::Head, Operation::List].into_iter().any(|operation| self.has(operation))
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let mut shares: Vec<(Operation, u32)> = Vec::new();
        for part in text.split(',') {
            let wrong = || format!("{part:?}: give the mix as put=N,get=N,head=N,list=N,delete=N");
            let (name, share) = part.split_once('=').ok_or_else(wrong)?;
            let operation = Operation::named(name.trim()).ok_or_else(wrong)?;
            let share: u32 = share.trim().parse().map_err(|_| wrong())?;
            if shares.iter().any(|(seen, _)| *seen == operation) {
                return Err(format!("{name} is named twice"));
            }
            shares.push((operation, share));
        }
        Weighted::new(shares).map(Mix)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (operation, share)) in self.0.parts().iter().enumerate() {
            write!(out, "{}{}={share}", if index == 0 { "" } else { "," }, operation.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_read_or_refused() {
        let mix: Mix = "get=95,put=5".parse().unwrap();
        assert!(mix.reads());
        let puts = (0..mix.total()).filter(|&number| mix.pick(number) == Operation::Put).count();
        assert_eq!((mix.total(), puts, mix.to_string()), (100, 5, "get=95,put=5".to_owned()));
        assert!(!"put=1,delete=1".parse::<Mix>().unwrap().reads());
        for wrong in ["", "get", "get=x", "fly=1", "get=0", "get=1,get=2", "get=1,"] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
    }
}
