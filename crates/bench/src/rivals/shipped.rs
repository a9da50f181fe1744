//! The rivals that the program knows, and those in a directory of the user's.

#![allow(clippy::disallowed_methods, reason = "reads files that the user names")]

use std::fs;
use std::path::Path;

use super::file::RivalFile;
use crate::error::BenchError;

/// Name and text of `bench/rivals/NAME.toml`.
macro_rules! shipped {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("../../../../bench/rivals/", $name, ".toml")))),*] };
}

const SHIPPED: [(&str, &str); 14] = shipped![
    "margay",
    "margay-far",
    "ext4",
    "ext4-no-dir-index",
    "tmpfs",
    "s3fs",
    "rclone",
    "goofys",
    "tigrisfs",
    "juicefs-redis",
    "juicefs-sqlite",
    "minio",
    "garage",
    "s3cmd"
];

/// All that are known, by name; a file in `directory` takes the place of a shipped one of its name.
pub(super) fn all(directory: Option<&Path>) -> Result<Vec<(String, RivalFile)>, BenchError> {
    let mut texts: Vec<(String, String)> =
        SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    for (name, text) in directory.map(own).transpose()?.unwrap_or_default() {
        texts.retain(|(known, _)| *known != name);
        texts.push((name, text));
    }
    let parse = |(name, text): (String, String)| match RivalFile::parse(&text) {
        Ok(file) => Ok((name, file)),
        Err(reason) => Err(BenchError::Usage(format!("rival {name}: {reason}"))),
    };
    texts.into_iter().map(parse).collect()
}

fn own(directory: &Path) -> Result<Vec<(String, String)>, BenchError> {
    let failed = BenchError::file(directory);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(&failed)? {
        let path = entry.map_err(&failed)?.path();
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Some(name) = path.file_stem()
        {
            let text = fs::read_to_string(&path).map_err(BenchError::file(&path))?;
            found.push((name.to_string_lossy().into_owned(), text));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::file::{Gives, Until};
    use super::*;

    #[test]
    fn what_is_shipped_can_be_read_and_says_when_it_is_ready() {
        for (name, file) in all(None).unwrap() {
            for gives in &file.gives {
                let ready = file.steps.iter().any(|step| match gives {
                    Gives::Directory => step.until == Until::Mounted,
                    Gives::S3 => matches!(step.until, Until::Port | Until::Get(_)),
                    Gives::Listing => false,
                });
                assert!(ready || *gives == Gives::Listing, "{name}: {gives:?}");
            }
        }
    }

    #[test]
    fn every_file_is_shipped() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/rivals");
        let mut shipped: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        shipped.sort_unstable();
        let found: Vec<String> = own(&folder).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, shipped);
    }

    #[test]
    fn a_file_of_the_users_takes_the_place_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let text = "title = \"mine\"\nlicence = \"MIT\"\ngives = [\"s3\"]\n";
        fs::write(folder.path().join("minio.toml"), text).unwrap();
        fs::write(folder.path().join("notes.txt"), "no rival").unwrap();
        let all = all(Some(folder.path())).unwrap();
        assert_eq!(all.len(), SHIPPED.len());
        assert_eq!(all.iter().find(|(name, _)| name == "minio").unwrap().1.title, "mine");
        fs::write(folder.path().join("broken.toml"), "title = 1").unwrap();
        assert!(matches!(super::all(Some(folder.path())), Err(BenchError::Usage(_))));
    }
}
