//! What `margay --version` says: the version, and the commit and day of the source when the build was told them.
//!
//! Why:        a report of a fault must name the source that it is about. `make build` and `make dist` set MARGAY_BUILD to what
//!             tools/commit.sh finds; asking git from a build script would build the program again at each commit.
//! Invariants: N1 the same source gives the same words: the day is the commit's, not the build's.

use std::sync::LazyLock;

/// `COMMIT, YYYY-MM-DD`; nothing in a build by plain `cargo build`.
const BUILD: Option<&str> = option_env!("MARGAY_BUILD");

/// `0.1.0 (0123456789ab, 2026-01-31)`, or only `0.1.0`.
pub static VERSION: LazyLock<String> = LazyLock::new(|| words(env!("CARGO_PKG_VERSION"), BUILD));

fn words(version: &str, build: Option<&str>) -> String {
    match build.map(str::trim).filter(|build| !build.is_empty()) {
        Some(build) => format!("{version} ({build})"),
        None => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_was_told_its_commit_names_it() {
        assert_eq!(words("0.1.0", Some("0123456789ab, 2026-01-31")), "0.1.0 (0123456789ab, 2026-01-31)");
        assert_eq!(words("0.1.0", Some(" ")), "0.1.0");
        assert_eq!(words("0.1.0", None), "0.1.0");
    }
}
