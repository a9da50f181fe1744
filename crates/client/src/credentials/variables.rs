//! The environment variables that name keys and places of keys.
//!
//! Why:        they are taken once, so that a test brings its own and a long run does not depend on later changes.
//! Not here:   what they mean (the other modules).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use margay_env::{Env, files};

/// Maximum size of the list of users, in bytes.
const USERS_BYTES_MAX: u64 = 4 << 20;

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
    /// Those of this process; values that are not UTF-8 cannot be meant. A program that systemd starts has no HOME, so that
    /// of the user counts then.
    pub fn of_process(env: &Env) -> Variables {
        let pairs = std::env::vars_os();
        let pairs = pairs.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut variables: Variables = pairs.collect();
        if variables.get("HOME").is_none() {
            let users = files::read(env, Path::new("/etc/passwd"), USERS_BYTES_MAX).unwrap_or_default();
            let user = rustix::process::geteuid().as_raw();
            let home = home_of(&String::from_utf8_lossy(&users), user);
            variables.0.extend(home.map(|home| ("HOME".to_owned(), home)));
        }
        variables
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

/// The home directory of a user in the list of users.
fn home_of(users: &str, user: u32) -> Option<String> {
    let user = user.to_string();
    let homes = users.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2) == Some(&user.as_str())).then(|| fields.get(5).map(|home| (*home).to_owned()))?
    });
    homes.into_iter().find(|home| home.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_home() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nx:y:7:7::none:\n";
        assert_eq!(home_of(users, 1000).as_deref(), Some("/home/ann"));
        assert_eq!((home_of(users, 0).as_deref(), home_of(users, 7), home_of("", 0)), (Some("/root"), None, None));
    }
}
