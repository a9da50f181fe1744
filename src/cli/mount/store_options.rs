//! Options of a mount that name its store: `endpoint=`, `cache=` and others, as mount(8) takes them; `fsync=`, `open=`,
//! `ttl=` and `writers=`, which only such a mount has.
//!
//! Why:        a line of fstab has no flags.
//! Not here:   options of the mount itself (mounts::options).

use std::path::PathBuf;

use margay_upstream::{Fsync, Opens, Ttl, Writers};

use super::parse_size;
use crate::backup_location::StoreArgs;
use crate::exit::Failure;
use crate::far_mount::FarMount;

/// What `-o` and flags say of the store.
#[derive(Debug, Default)]
pub(super) struct StoreOptions {
    pub store: StoreArgs,
    pub cache: Option<PathBuf>,
    /// In bytes.
    pub cache_size: Option<u64>,
    /// `-o fsync=local`.
    pub fsync: Option<Fsync>,
    /// `-o open=always`.
    pub opens: Option<Opens>,
    /// `-o ttl=SECONDS`.
    pub ttl: Option<Ttl>,
    /// `-o writers=one`.
    pub writers: Option<Writers>,
}

impl StoreOptions {
    /// Takes those of the words that name the store; the rest is of the mount. A flag counts more than a word.
    pub(super) fn take(mut self, words: &mut Vec<String>) -> Result<StoreOptions, Failure> {
        let mut left = Vec::new();
        for word in words.drain(..) {
            if !self.takes(word.trim())? {
                left.push(word);
            }
        }
        *words = left;
        Ok(self)
    }

    fn takes(&mut self, word: &str) -> Result<bool, Failure> {
        let Some((name, value)) = word.split_once('=') else { return Ok(false) };
        let text = match name {
            "endpoint" => &mut self.store.endpoint,
            "profile" => &mut self.store.profile,
            "region" => &mut self.store.region,
            "addressing" => &mut self.store.addressing,
            "ca" | "cache" => {
                let path = if name == "ca" { &mut self.store.ca } else { &mut self.cache };
                path.get_or_insert_with(|| PathBuf::from(value));
                return Ok(true);
            }
            "cache_size" => {
                let size = parse_size(value).map_err(|error| Failure::usage(format!("{word}: {error}")))?;
                self.cache_size.get_or_insert(size);
                return Ok(true);
            }
            "fsync" => {
                let fsync = match value {
                    "upstream" => Fsync::Upstream,
                    "local" => Fsync::Local,
                    _ => return Err(Failure::usage(format!("{word}: fsync=upstream or fsync=local"))),
                };
                self.fsync.get_or_insert(fsync);
                return Ok(true);
            }
            "open" => {
                let refused = || Failure::usage(format!("{word}: open=ttl, open=3s or open=always"));
                let opens = Opens::parse(value).ok_or_else(refused)?;
                self.opens.get_or_insert(opens);
                return Ok(true);
            }
            "ttl" => {
                let refused = || Failure::usage(format!("{word}: seconds, from 1 to {}", Ttl::SECONDS_MAX));
                let ttl = value.parse().ok().and_then(Ttl::fixed).ok_or_else(refused)?;
                self.ttl.get_or_insert(ttl);
                return Ok(true);
            }
            "writers" => {
                let writers = match value {
                    "many" => Writers::Many,
                    "one" => Writers::One,
                    _ => return Err(Failure::usage(format!("{word}: writers=many or writers=one"))),
                };
                self.writers.get_or_insert(writers);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        text.get_or_insert_with(|| value.to_owned());
        Ok(true)
    }

    /// Sets what a far mount has besides its store.
    pub(super) fn set(&self, mount: &mut FarMount) {
        mount.fsync = self.fsync.unwrap_or_default();
        mount.opens = self.opens.unwrap_or_default();
        mount.ttl = self.ttl.unwrap_or_default();
        mount.writers = self.writers.unwrap_or_default();
    }

    /// Refuses them where no store is named.
    pub(super) fn expect_none(&self) -> Result<(), Failure> {
        let is_of_far = self.fsync.is_some() || self.opens.is_some() || self.ttl.is_some() || self.writers.is_some();
        if self.cache.is_none() && self.cache_size.is_none() && !is_of_far && !self.store.is_given() {
            return Ok(());
        }
        let flags = "--cache, --cache-size, --endpoint, --profile, --region, --addressing, --ca, -o fsync=, open=, ttl= and writers=";
        Err(Failure::usage(format!("{flags} belong to s3://BUCKET/PREFIX")))
    }

    /// The flags that say the same.
    pub(super) fn flags(&self) -> Vec<String> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let (store, mut flags) = (&self.store, Vec::new());
        for (name, value) in [
            ("--endpoint", store.endpoint.clone()),
            ("--profile", store.profile.clone()),
            ("--region", store.region.clone()),
            ("--addressing", store.addressing.clone()),
            ("--ca", path(&store.ca)),
            ("--cache", path(&self.cache)),
            ("--cache-size", self.cache_size.map(|size| size.to_string())),
        ] {
            flags.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        }
        if self.fsync == Some(Fsync::Local) {
            flags.extend(["-o".to_owned(), "fsync=local".to_owned()]);
        }
        if let Some(opens) = self.opens {
            flags.extend(["-o".to_owned(), format!("open={}", opens.name())]);
        }
        if let Some(ttl) = self.ttl {
            flags.extend(["-o".to_owned(), format!("ttl={}", ttl.least.as_secs())]);
        }
        if self.writers == Some(Writers::One) {
            flags.extend(["-o".to_owned(), "writers=one".to_owned()]);
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_store_are_told_from_those_of_the_mount() {
        let text = "_netdev,endpoint=http://h:1,ro,cache=/c,cache_size=1KiB,x-systemd.requires=a.service,region=eu,addressing=path,profile=p,ca=/f,fsync=local,open=always,ttl=30,writers=one";
        let mut words: Vec<String> = text.split(',').map(str::to_owned).collect();
        let flag = StoreArgs { region: Some("us".to_owned()), ..StoreArgs::default() };
        let flags = StoreOptions { store: flag, ..StoreOptions::default() };
        let options = flags.take(&mut words).unwrap();
        assert_eq!(words, ["_netdev", "ro", "x-systemd.requires=a.service"]);
        let expected = "--endpoint http://h:1 --profile p --region us --addressing path --ca /f --cache /c --cache-size 1024 -o fsync=local -o open=always -o ttl=30 -o writers=one";
        assert_eq!(options.flags().join(" "), expected);
        for wrong in [
            "cache_size=much",
            "fsync=never",
            "open=sometimes",
            "open=",
            "writers=two",
            "ttl=0",
            "ttl=-1",
            "ttl=1.5",
            "ttl=86401",
        ] {
            assert!(StoreOptions::default().take(&mut vec![wrong.to_owned()]).is_err(), "{wrong}");
        }
        assert!(options.expect_none().is_err() && StoreOptions::default().expect_none().is_ok());
    }
}
