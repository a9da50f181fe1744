//! How old what is known may be when a file is opened, and when a name is not here.
//!
//! Not here:   when that is looked at (refresh), how old it is (tracked/ages).

/// What `open` asks the bucket for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opens {
    /// Nothing: what was listed counts as long as the listing does.
    Listed,
    /// What is older than three seconds, with one listing for many files.
    #[default]
    Recent,
    /// Each file, and each name that is not here, at each time: strict close-to-open.
    Always,
}

impl Opens {
    /// All of them, by the words of options.
    pub const NAMED: [(&str, Opens); 3] = [("ttl", Opens::Listed), ("3s", Opens::Recent), ("always", Opens::Always)];

    pub fn parse(word: &str) -> Option<Opens> {
        Opens::NAMED.iter().find(|(name, _)| *name == word).map(|(_, opens)| *opens)
    }

    pub fn name(self) -> &'static str {
        Opens::NAMED.iter().find(|(_, opens)| *opens == self).map_or("", |(name, _)| name)
    }
}
