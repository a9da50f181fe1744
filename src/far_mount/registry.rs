//! The far mounts of this user: their caches, running or not.
//!
//! Why:        the kernel's table of mounts names no cache, and a mount that is gone may have left something to send.
//! Layout:     one file for each cache in `$XDG_STATE_HOME/margay/far`, of root in `/var/lib/margay/far`, else in
//!             `~/.local/state/margay/far`. Its name is a digest of the cache's path, its content JSON.
//! Invariants: G1 a cache is entered before it is mounted, and removed when everything of it is in the bucket, also where the
//!                mount fails.
//!             G2 an entry is a hint: one that is missing or wrong loses no data.
//! Not here:   what is left in a cache (margay-upstream).

use std::io;
use std::path::{Path, PathBuf};

use margay_env::{Env, files};
use serde_json::{Value, json};

/// Maximum size of an entry, in bytes.
const ENTRY_BYTES_MAX: u64 = 64 << 10;
/// Bytes of the digest that are the name.
const NAME_BYTES: usize = 16;
const OF_ROOT: &str = "/var/lib/margay/far";

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownCache {
    pub cache: PathBuf,
    /// `s3://BUCKET/PREFIX`.
    pub source: String,
    pub endpoint: String,
    /// Where it is, or was last, mounted.
    pub path: Option<PathBuf>,
}

/// `None`: this user has no home.
fn directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(state) = set("XDG_STATE_HOME") {
        return Some(state.join("margay/far"));
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(OF_ROOT));
    }
    set("HOME").map(|home| home.join(".local/state/margay/far"))
}

impl KnownCache {
    fn to_json(&self) -> Value {
        json!({
            "cache": self.cache.display().to_string(),
            "source": self.source,
            "endpoint": self.endpoint,
            "path": self.path.as_ref().map(|path| path.display().to_string()),
        })
    }

    fn parse(bytes: &[u8]) -> Option<KnownCache> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Some(KnownCache {
            cache: text("cache")?.into(),
            source: text("source")?,
            endpoint: text("endpoint")?,
            path: text("path").map(PathBuf::from),
        })
    }

    /// Enters it; a failure costs that commands do not find it.
    pub fn enter(&self, env: &Env) {
        let entered =
            directory().map_or_else(|| Err(io::Error::other("no HOME")), |folder| self.enter_in(env, &folder));
        if let Err(error) = entered {
            tracing::warn!(%error, "this mount is not entered: name its cache in commands, with --cache DIR");
        }
    }

    fn enter_in(&self, env: &Env, folder: &Path) -> io::Result<()> {
        env.disk.create_private_dir(folder)?;
        files::write_new(env, &folder.join(name_of(&self.cache)), self.to_json().to_string().as_bytes())
    }
}

fn name_of(cache: &Path) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, cache.as_os_str().as_encoded_bytes());
    base16ct::lower::encode_string(&digest.as_ref()[..NAME_BYTES])
}

/// Everything of the cache is in the bucket.
pub fn remove(env: &Env, cache: &Path) {
    if let Some(folder) = directory() {
        // Gone, or a hint that leads nowhere (G2).
        let _ = env.disk.remove(&folder.join(name_of(cache)));
    }
}

/// All caches that exist, by their mount points.
pub fn entries(env: &Env) -> Vec<KnownCache> {
    directory().map(|folder| entries_in(env, &folder)).unwrap_or_default()
}

fn entries_in(env: &Env, folder: &Path) -> Vec<KnownCache> {
    let Ok(names) = env.disk.list(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for name in names.iter().filter(|name| !name.name.ends_with(".new")) {
        let file = folder.join(&name.name);
        let Some(entry) = files::read(env, &file, ENTRY_BYTES_MAX).ok().and_then(|bytes| KnownCache::parse(&bytes))
        else {
            continue;
        };
        match env.disk.exists(&entry.cache.join("format")) {
            // Whoever removed the cache wants nothing of it.
            Ok(false) => drop(env.disk.remove(&file)),
            _ => found.push(entry),
        }
    }
    found.sort_by(|one, other| (&one.path, &one.cache).cmp(&(&other.path, &other.cache)));
    found
}

/// Those mounted at a path, or nearest above it: several, if processes were killed.
pub fn of_path(entries: &[KnownCache], path: &Path) -> Vec<KnownCache> {
    let above = |entry: &&KnownCache| entry.path.as_ref().is_some_and(|mounted| path.starts_with(mounted));
    let mut found: Vec<KnownCache> = entries.iter().filter(above).cloned().collect();
    let nearest = found.iter().filter_map(|entry| entry.path.clone()).max_by_key(|mounted| mounted.as_os_str().len());
    found.retain(|entry| entry.path == nearest);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_entered_found_and_forgotten() {
        let (env, folder) = (Env::real(), tempfile::tempdir().unwrap());
        let (state, cache) = (folder.path().join("state"), folder.path().join("cache"));
        let entry = |path: &str| KnownCache {
            cache: cache.clone(),
            source: "s3://b/p".to_owned(),
            endpoint: "http://h:1".to_owned(),
            path: Some(path.into()),
        };
        entry("/mnt/a").enter_in(&env, &state).unwrap();
        assert_eq!(entries_in(&env, &state), [], "the cache does not exist");
        env.disk.create_dir_all(&cache).unwrap();
        files::write_new(&env, &cache.join("format"), b"").unwrap();
        entry("/mnt/b").enter_in(&env, &state).unwrap();
        entry("/mnt/a").enter_in(&env, &state).unwrap();
        assert_eq!(entries_in(&env, &state), [entry("/mnt/a")], "a cache has one entry");
        let both = [entry("/mnt"), entry("/mnt/a")];
        assert_eq!(of_path(&both, Path::new("/mnt/a/file")), [entry("/mnt/a")]);
        assert_eq!(of_path(&both, Path::new("/mnt/other")), [entry("/mnt")]);
        assert_eq!(of_path(&both, Path::new("/mntother")), []);
    }
}
