//! `{name}` in a rival's commands and files: what only a run knows.
//!
//! Invariants: values are put in once and not read again, so a value with braces stays as it is.

use std::path::{Path, PathBuf};

/// Where a rival lives and whom it talks to.
#[derive(Clone, Debug)]
pub(crate) struct Placeholders {
    /// This program.
    pub(super) margay: PathBuf,
    /// A directory of the rival's own.
    pub(super) work: PathBuf,
    /// An empty directory to mount on.
    pub(super) mount: PathBuf,
    /// A directory for what the mount keeps: no two mount points share one.
    pub(super) cache: PathBuf,
    /// Ports of this machine that were free a moment ago.
    pub(super) ports: [u16; 2],
    /// The S3 server to keep data in, or the rival's own.
    pub(super) endpoint: String,
    pub(super) bucket: String,
    pub(super) access_key: String,
    pub(super) secret_key: String,
    pub(super) region: String,
}

const NAMES: [&str; 11] =
    ["margay", "work", "mount", "cache", "port", "port2", "endpoint", "bucket", "access_key", "secret_key", "region"];

impl Placeholders {
    fn value(&self, name: &str) -> Option<String> {
        let path = |path: &Path| path.display().to_string();
        Some(match name {
            "margay" => path(&self.margay),
            "work" => path(&self.work),
            "mount" => path(&self.mount),
            "cache" => path(&self.cache),
            "port" => self.ports[0].to_string(),
            "port2" => self.ports[1].to_string(),
            "endpoint" => self.endpoint.clone(),
            "bucket" => self.bucket.clone(),
            "access_key" => self.access_key.clone(),
            "secret_key" => self.secret_key.clone(),
            "region" => self.region.clone(),
            _ => return None,
        })
    }

    pub(super) fn fill(&self, text: &str) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, name, after)) = first(rest) {
            out.push_str(before);
            out.push_str(&self.value(name).unwrap_or_else(|| format!("{{{name}}}")));
            rest = after;
        }
        out + rest
    }

    pub(super) fn fill_all(&self, texts: &[String]) -> Vec<String> {
        texts.iter().map(|text| self.fill(text)).collect()
    }
}

/// The text before the first `{word}`, the word, and the text after.
fn first(text: &str) -> Option<(&str, &str, &str)> {
    for (open, _) in text.match_indices('{') {
        let inner = &text[open + 1..];
        if let Some(close) = inner.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            && close > 0
            && inner[close..].starts_with('}')
        {
            return Some((&text[..open], &inner[..close], &inner[close + 1..]));
        }
    }
    None
}

/// Err for a text with a placeholder that nothing fills.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut rest = text;
    while let Some((_, name, after)) = first(rest) {
        if !NAMES.contains(&name) {
            return Err(format!("{{{name}}} is no placeholder; there are {}", NAMES.join(", ")));
        }
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Placeholders {
        Placeholders {
            margay: PathBuf::from("/bin/margay"),
            work: PathBuf::from("/w"),
            mount: PathBuf::from("/w/m"),
            cache: PathBuf::from("/w/c"),
            ports: [1, 2],
            endpoint: "http://{work}".to_owned(),
            bucket: "b".to_owned(),
            access_key: "a".to_owned(),
            secret_key: "s".to_owned(),
            region: "r".to_owned(),
        }
    }

    #[test]
    fn every_name_has_a_value_that_is_not_read_again() {
        for name in NAMES {
            assert!(some().value(name).is_some(), "{name}");
        }
        assert_eq!(some().fill("x{port}{port2} {endpoint}/{ {} {work"), "x12 http://{work}/{ {} {work");
        assert!(check("{port} {} { x }").is_ok() && check("{prot}").is_err());
    }
}
