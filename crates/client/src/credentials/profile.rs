//! The files of AWS's tools: `~/.aws/credentials` and `~/.aws/config`.
//!
//! Why:        people keep keys, regions and endpoints there, for all of their programs.
//! Invariants: I1 any text gives a profile or an error, never a panic; what is not understood is passed over.
//!             I2 a profile that somebody named and that is in no file is an error.
//! Not here:   running the process that a profile names (`process`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use margay_env::{Env, files};

use super::variables::Variables;

/// Maximum size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
const DEFAULT: &str = "default";
/// The default region of signatures; servers with one region accept any.
pub const REGION_DEFAULT: &str = "us-east-1";

/// The settings of one section; those below a setting have both names, as `s3.addressing_style`.
type Section = BTreeMap<String, String>;

/// One profile of both files.
#[derive(Clone, Default)]
pub struct Profile {
    pub(super) name: String,
    pub(super) credentials: Section,
    pub(super) config: Section,
    /// Endpoints by service, of the section that the profile names.
    services: Section,
    /// What was looked at, for people.
    pub(super) looked: Vec<String>,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Some of the values are secrets.
        out.debug_struct("Profile").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Profile {
    /// Reads the profile `named`, else that of AWS_PROFILE, else the default one. The error is one line.
    pub fn load(env: &Env, variables: &Variables, named: Option<&str>) -> Result<Profile, String> {
        let named = named.or_else(|| variables.first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]));
        let mut profile = Profile { name: named.unwrap_or(DEFAULT).to_owned(), ..Profile::default() };
        let is_default = profile.name == DEFAULT;
        let mut read = |variable: &str, below: &str, is_config: bool| match variables.file(variable, below) {
            None => {
                profile.looked.push(format!("~/{below} (there is no HOME)"));
                Ok((None, BTreeMap::new()))
            }
            Some(path) => {
                let sections = sections(env, &path)?;
                let found = sections.as_ref().and_then(|all| section(all, &profile.name, is_config)).cloned();
                let what = match (&sections, &found) {
                    (None, _) => "no such file".to_owned(),
                    (_, None) => format!("no profile {}", profile.name),
                    _ => format!("no keys in the profile {}", profile.name),
                };
                profile.looked.push(format!("{} ({what})", path.display()));
                Ok::<_, String>((found, sections.unwrap_or_default()))
            }
        };
        let (credentials, _) = read("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", false)?;
        let (config, all) = read("AWS_CONFIG_FILE", ".aws/config", true)?;
        if named.is_some() && !is_default && credentials.is_none() && config.is_none() {
            return Err(format!("there is no profile {}: {}", profile.name, profile.looked.join(", ")));
        }
        (profile.credentials, profile.config) = (credentials.unwrap_or_default(), config.unwrap_or_default());
        if let Some(services) = profile.config.get("services") {
            profile.services = all.get(&format!("services {services}")).cloned().unwrap_or_default();
        }
        Ok(profile)
    }

    /// A setting of either file; an empty one counts as none.
    pub fn get(&self, name: &str) -> Option<&str> {
        let setting = self.credentials.get(name).or_else(|| self.config.get(name));
        setting.map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The endpoint of a service, such as `s3`.
    pub fn endpoint(&self, service: &str) -> Option<&str> {
        let own = self.services.get(&format!("{service}.endpoint_url")).map(String::as_str);
        own.or_else(|| self.get("endpoint_url"))
    }
}

/// In the file of settings, every profile but the default one is `[profile NAME]`.
fn section<'s>(all: &'s BTreeMap<String, Section>, name: &str, is_config: bool) -> Option<&'s Section> {
    let long = format!("profile {name}");
    match is_config {
        true if name == DEFAULT => all.get(&long).or_else(|| all.get(name)),
        true => all.get(&long),
        false => all.get(name),
    }
}

/// `None`: the file does not exist.
fn sections(env: &Env, path: &Path) -> Result<Option<BTreeMap<String, Section>>, String> {
    match files::read(env, path, FILE_BYTES_MAX) {
        Ok(bytes) => Ok(Some(parse(&String::from_utf8_lossy(&bytes)))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}", shown(path))),
    }
}

fn shown(path: &Path) -> String {
    PathBuf::from(path).display().to_string()
}

/// A setting is `name = value`; indented ones belong to the setting above, which has no value of its own.
fn parse(text: &str) -> BTreeMap<String, Section> {
    let mut all: BTreeMap<String, Section> = BTreeMap::new();
    let (mut inside, mut above) = (None::<String>, String::new());
    for line in text.lines() {
        let words = line.trim();
        if words.is_empty() || words.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = words.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            all.entry(name.clone()).or_default();
            (inside, above) = (Some(name), String::new());
            continue;
        }
        let (Some(section), Some((name, value))) = (&inside, words.split_once('=')) else { continue };
        let (name, value) = (name.trim(), without_comment(value.trim()));
        let is_below = line.starts_with([' ', '\t']) && !above.is_empty();
        let name = if is_below { format!("{above}.{name}") } else { name.to_owned() };
        if !is_below {
            above = if value.is_empty() { name.clone() } else { String::new() };
        }
        all.entry(section.clone()).or_default().insert(name, value.to_owned());
    }
    all
}

/// A comment behind a value begins with a blank.
fn without_comment(value: &str) -> &str {
    let ends = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark));
    ends.min().map_or(value, |end| value[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_the_tools_write_them() {
        let all = parse(
            "# mine\naws = outside\n[default]\nregion=eu-north-1 ; north\n\n[ profile   two ]\nservices = here\ns3 =\n  \
             addressing_style = path\n\tmax = 1\nregion = a#b\n[services here]\ns3 =\n  endpoint_url = http://h:1\n[broken\nx",
        );
        assert_eq!(all["default"]["region"], "eu-north-1");
        let two = &all["profile two"];
        assert_eq!(
            (two["s3.addressing_style"].as_str(), two["s3.max"].as_str(), two["region"].as_str()),
            ("path", "1", "a#b")
        );
        assert_eq!(all["services here"]["s3.endpoint_url"], "http://h:1");
        assert!(section(&all, "two", false).is_none() && section(&all, "two", true).is_some());
        assert!(section(&all, "default", true).is_some() && !all.contains_key(""));
    }
}
