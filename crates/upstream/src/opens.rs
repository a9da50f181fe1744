//! What a user says of other programs: how old what is known may be, when a file is opened or a name is not here, and when a directory is looked at.
//!
//! Not here:   when that is looked at (refresh), how old it is (tracked/ages).

use std::time::Duration;

/// How long a listing counts: longer each time that nothing had changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl {
    pub least: Duration,
    pub most: Duration,
}

impl Default for Ttl {
    fn default() -> Ttl {
        Ttl { least: Duration::from_secs(3), most: Duration::from_secs(60) }
    }
}

impl Ttl {
    /// A day.
    pub const SECONDS_MAX: u64 = 86_400;

    /// Always the same time, of a second at least.
    pub fn fixed(seconds: u64) -> Option<Ttl> {
        let time = Duration::from_secs(seconds);
        (1..=Ttl::SECONDS_MAX).contains(&seconds).then_some(Ttl { least: time, most: time })
    }
}

/// Who changes objects below the prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writers {
    /// Anybody.
    #[default]
    Many,
    /// This mount alone, as somebody says: where the store ignores conditions, nothing is asked for before it is changed.
    One,
}

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
