//! The environment variables that name keys and places of keys.
//!
//! Why:        they are taken once, so that a test brings its own and a long run does not depend on later changes.
//! Not here:   what they mean (the other modules).

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Variables of AWS's tools, and HOME.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl std::fmt::Debug for Variables {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Some of the values are secrets.
        out.debug_set().entries(self.0.keys()).finish()
    }
}

impl Variables {
    /// Those of this process; values that are not UTF-8 cannot be meant.
    pub fn of_process() -> Variables {
        let pairs =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        pairs.collect()
    }

    /// An empty value counts as none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The first of these that has a value.
    pub fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The file that a variable names, else the one below the home directory; none without a home.
    pub(super) fn file(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        let home = || self.get("HOME").map(PathBuf::from);
        match self.get(name) {
            None => home().map(|home| home.join(below_home)),
            Some(path) => match path.strip_prefix("~/") {
                Some(rest) => home().map(|home| home.join(rest)),
                None => Some(PathBuf::from(path)),
            },
        }
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Variables {
        Variables(pairs.into_iter().filter(|(name, _)| name.starts_with("AWS_") || name == "HOME").collect())
    }
}
