//! A rival as a file: what it is, what it needs, how it is started, seen to be ready, and stopped.
//!
//! Why:      commands of other programs are data; a user adds a rival without building this program.
//! Source:   TOML, described in docs/bench.md.
//! Not here: running the commands (`start`), filling in their `{placeholders}` (`placeholders`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::placeholders;

/// Limit of a step that names none, in seconds.
const STEP_SECONDS: u64 = 60;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RivalFile {
    /// In words.
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) home: String,
    pub(crate) licence: String,
    pub(crate) gives: Vec<Gives>,
    /// Its steps may only be done by root.
    #[serde(default)]
    pub(crate) needs_root: bool,
    /// It keeps its data in a bucket of an S3 server.
    #[serde(default)]
    pub(crate) needs_store: bool,
    /// What must be on PATH.
    #[serde(default)]
    pub(crate) programs: Vec<String>,
    /// Prints the version in its first line; empty when no command does.
    #[serde(default)]
    pub(crate) version: Vec<String>,
    /// Keys of its own S3 door, where it does not take any.
    pub(crate) access_key: Option<String>,
    pub(crate) secret_key: Option<String>,
    /// Written before the first step.
    #[serde(default, rename = "file")]
    pub(crate) files: Vec<TextFile>,
    /// In this order; undone in reverse.
    #[serde(default, rename = "step")]
    pub(crate) steps: Vec<Step>,
}

/// What a benchmark can do with a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Gives {
    /// Work in a directory.
    Directory,
    /// Talk to an S3 server.
    S3,
    /// Have a client list a server's keys; it has no steps.
    Listing,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// One command.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// Only when the rival is wanted for this.
    #[serde(rename = "for")]
    pub(crate) only_for: Option<Gives>,
    /// Program and arguments; no shell reads them.
    pub(crate) run: Vec<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// When the next step may begin.
    #[serde(default)]
    pub(crate) until: Until,
    /// How long that may take.
    #[serde(default = "step_seconds")]
    seconds: u64,
    /// Takes it back, before its process is ended. Mounts are unmounted and processes ended without it.
    #[serde(default)]
    pub(crate) undo: Vec<String>,
}

/// When a step is done. In all cases but `Exit` its process may stay, and is ended with the rival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Until {
    /// The command has ended well.
    #[default]
    Exit,
    /// `{mount}` is a mount.
    Mounted,
    /// `{port}` takes connections.
    Port,
    /// `{port}` answers 200 to a GET of this path.
    Get(String),
}

impl TryFrom<String> for Until {
    type Error = String;

    fn try_from(text: String) -> Result<Until, String> {
        match text.as_str() {
            "exit" => Ok(Until::Exit),
            "mounted" => Ok(Until::Mounted),
            "port" => Ok(Until::Port),
            other => match other.strip_prefix("GET ") {
                Some(path) if path.starts_with('/') => Ok(Until::Get(path.to_owned())),
                _ => Err(format!("{other:?} is not one of exit, mounted, port, GET /PATH")),
            },
        }
    }
}

fn step_seconds() -> u64 {
    STEP_SECONDS
}

impl Step {
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl RivalFile {
    /// Reads a file; the message says what is wrong and where.
    pub(crate) fn parse(text: &str) -> Result<RivalFile, String> {
        let file: RivalFile = toml::from_str(text).map_err(|error| error.to_string())?;
        if file.gives.is_empty() {
            return Err("`gives` is empty: a rival gives a \"directory\", \"s3\" or a \"listing\"".to_owned());
        }
        if file.steps.iter().any(|step| step.run.is_empty()) {
            return Err("a step with an empty `run`".to_owned());
        }
        for text in file.texts() {
            placeholders::check(text)?;
        }
        Ok(file)
    }

    /// Everything that may hold placeholders.
    fn texts(&self) -> impl Iterator<Item = &String> {
        let files = self.files.iter().flat_map(|file| [&file.path, &file.text]);
        let steps =
            self.steps.iter().flat_map(|step| step.run.iter().chain(step.environment.values()).chain(&step.undo));
        self.version.iter().chain(files).chain(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "title = \"x\"\nlicence = \"MIT\"\ngives = [\"s3\"]\n";

    #[test]
    fn a_file_is_read() {
        let text = format!("{SMALL}[[step]]\nrun = [\"x\", \"{{port}}\"]\nuntil = \"GET /live\"\nfor = \"s3\"\n");
        let file = RivalFile::parse(&text).unwrap();
        let step = &file.steps[0];
        assert_eq!((step.until.clone(), step.only_for), (Until::Get("/live".to_owned()), Some(Gives::S3)));
        assert_eq!(step.limit(), Duration::from_secs(STEP_SECONDS));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let wrong = [
            "gives = [\"s3\"]\n".to_owned(),
            SMALL.replace("\"s3\"", ""),
            SMALL.replace("\"s3\"", "\"disk\""),
            format!("{SMALL}colour = \"red\"\n"),
            format!("{SMALL}[[step]]\nrun = []\n"),
            format!("{SMALL}[[step]]\nrun = [\"x\"]\nuntil = \"soon\"\n"),
            format!("{SMALL}[[step]]\nrun = [\"x\", \"{{prot}}\"]\n"),
        ];
        for text in wrong {
            assert!(RivalFile::parse(&text).is_err(), "{text}");
        }
    }
}
