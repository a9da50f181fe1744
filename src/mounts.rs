//! The mounts of a server: listing, creating and ending them.
//!
//! Why:        a bucket has one session with the kernel, so that locks and caches are shared by all its users; further
//!             mount points of it are bind mounts.
//! Invariants: T1 a mounted bucket has exactly one session.
//!             T2 a mount or bind mount that somebody else unmounted leaves the list before it is next read.
//! Locking:    one lock, held while a mount is created or ended: that is rare and must not run twice. The lock of the
//!             record may be taken below it.
//! Not here:   requests of the kernel (margay-fuse), commands (`cli`, `control`).

mod metrics;
pub mod options;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use margay_env::Env;
use margay_fuse::mount_point::{self, MOUNT_KIND};
use margay_fuse::{Mounted, SessionOptions, holders, names};
use margay_s3::iso_time;
use margay_volume::posix::{Mount, MountOptions, PosixError, UpstreamSync};
use margay_volume::{MountHolder, Volume};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::connections::Record;
use options::MountChoice;

/// How often unmounting a busy mount point is retried.
const BUSY_RETRY: Duration = Duration::from_millis(50);
/// Who uses a busy mount point is told after this, so that a program that is just leaving is not.
const TELL_AFTER: Duration = Duration::from_millis(500);
/// How long a session that somebody else unmounted gets to publish written data.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// A requested mount, of a bucket that can exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountWish {
    pub bucket: String,
    /// Empty, or a directory with a trailing `/`.
    pub prefix: String,
    /// Absolute.
    pub path: PathBuf,
    pub choice: MountChoice,
}

impl MountWish {
    /// `what` is `BUCKET` or `BUCKET/PREFIX`.
    pub fn new(what: &str, path: &Path, choice: MountChoice) -> Result<MountWish, String> {
        let (bucket, prefix) = what.trim_end_matches('/').split_once('/').unwrap_or((what.trim_end_matches('/'), ""));
        if bucket.is_empty() {
            return Err(format!("{what:?} names no bucket; write BUCKET or BUCKET/PREFIX"));
        }
        if !margay_s3::route::fits_bucket_name(bucket) {
            return Err(format!(
                "{bucket:?} is no name of a bucket: it has 3 to 63 characters, lower-case letters, digits, dots and hyphens"
            ));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let path = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
        // The form in which the kernel lists it.
        let path = path.canonicalize().unwrap_or(path);
        Ok(MountWish { bucket: bucket.to_owned(), prefix, path, choice })
    }

    /// `BUCKET[/PREFIX]=DIR`, as in settings.
    pub fn parse(text: &str, choice: MountChoice) -> Result<MountWish, String> {
        let (what, path) = text
            .split_once('=')
            .filter(|(_, path)| !path.is_empty())
            .ok_or_else(|| format!("{text:?} is no mount; write BUCKET=DIR or BUCKET/PREFIX=DIR"))?;
        MountWish::new(what, Path::new(path), choice)
    }

    fn source(&self) -> String {
        format!("margay:{}{}{}", self.bucket, if self.prefix.is_empty() { "" } else { "/" }, self.prefix)
    }
}

/// A mount point of a session.
#[derive(Clone, Debug)]
struct View {
    path: PathBuf,
    prefix: String,
    read_only: bool,
}

/// A session and its mount points; the first is the original one.
#[derive(Debug)]
struct MountedSession {
    wish: MountWish,
    mounted: Mounted,
    views: Vec<View>,
}

#[derive(Debug)]
pub struct Mounts {
    env: Env,
    volume: Arc<Volume>,
    /// Inodes that the kernel may know of one mount.
    known_files_max: usize,
    sessions: Mutex<Vec<MountedSession>>,
    record: Mutex<Record>,
    /// Who used the mount point that was detached last, if anybody did.
    cut_off: Mutex<Option<String>>,
    /// A store that `fsync` waits for, and the source that the kernel shows for it.
    upstream: Option<(Arc<dyn UpstreamSync>, String)>,
}

impl Mounts {
    /// `data`: the data directory, where connections are recorded for the case that this server dies.
    pub fn new(env: &Env, data: &Path, volume: &Arc<Volume>, known_files_max: usize) -> Mounts {
        let record = Mutex::new(Record::new(env, data));
        let (volume, sessions, cut_off) = (Arc::clone(volume), Mutex::default(), Mutex::default());
        Mounts { env: env.clone(), volume, known_files_max, sessions, record, cut_off, upstream: None }
    }

    /// `fsync` waits for this store too. The kernel shows its mounts as those of `source`.
    pub fn with_upstream(self, upstream: Arc<dyn UpstreamSync>, source: String) -> Mounts {
        Mounts { upstream: Some((upstream, source)), ..self }
    }

    /// Who used the mount point that was detached last, if anybody did.
    pub fn cut_off(&self) -> Option<String> {
        self.cut_off.lock().clone()
    }

    /// Whether nothing is mounted any more, whoever unmounted it.
    pub fn is_empty(&self) -> bool {
        let mut sessions = self.sessions.lock();
        self.drop_ended(&mut sessions);
        sessions.is_empty()
    }

    /// Mounts; creates the directory if it is absent. Blocks; the error is one line. The bucket must exist.
    pub fn mount(&self, wish: &MountWish) -> Result<(), String> {
        let mut sessions = self.sessions.lock();
        self.drop_ended(&mut sessions);
        let shown = wish.path.display();
        mount_point::clear_dead(&wish.path).map_err(|error| format!("{shown} cannot be freed: {error}"))?;
        self.env.disk.create_dir_all(&wish.path).map_err(|error| format!("{shown} cannot be made: {error}"))?;
        let taken = |session: &MountedSession| session.views.iter().any(|view| view.path == wish.path);
        if sessions.iter().any(taken) {
            return Err(format!("{shown} is a mount of this server already"));
        }
        let lines =
            mount_point::mounts(&self.env).map_err(|error| format!("what is mounted cannot be read: {error}"))?;
        if lines.iter().any(|line| line.path == wish.path && line.kind == MOUNT_KIND) {
            return Err(format!("{shown} is a mount of margay already; unmount it first"));
        }
        if let Some(session) = sessions.iter_mut().find(|session| session.wish.bucket == wish.bucket) {
            return add_view(session, wish);
        }
        let options = MountOptions {
            sync: wish.choice.sync,
            read_only: wish.choice.read_only,
            plain: wish.choice.plain,
            claim: wish.choice.claim(),
            upstream: self.upstream.as_ref().map(|(upstream, _)| Arc::clone(upstream)),
        };
        let mount =
            Mount::open(Arc::clone(&self.volume), &wish.bucket, &wish.prefix, options).map_err(
                |error| match error {
                    PosixError::NotFound => format!("there is no directory {}{}", wish.bucket, slash(&wish.prefix)),
                    PosixError::MountedElsewhere(holder) => taken_by(&holder),
                    error => format!("{}: {error}", wish.bucket),
                },
            )?;
        let waits = self.volume.engine().waits() || self.upstream.is_some();
        let source = self.upstream.as_ref().map_or_else(|| wish.source(), |(_, source)| source.clone());
        let session = SessionOptions {
            is_of_several: mount.is_of_several(),
            asks_for_locks: mount.is_of_several() && wish.choice.asks_for_locks(),
            ..wish.choice.session(source.clone(), self.known_files_max, waits)
        };
        let made = || self.record.lock().add(&wish.path);
        let mounted =
            Mounted::new(&mount, &wish.path, wish.choice.ownership(), &session, &self.env, &made).map_err(|error| {
                // Its lease ends with it; where that cannot be told now, by the next beat.
                let _ = mount.give_up();
                error.to_string()
            })?;
        tracing::info!(path = %shown, source, "mounted");
        let views =
            vec![View { path: wish.path.clone(), prefix: wish.prefix.clone(), read_only: wish.choice.read_only }];
        sessions.push(MountedSession { wish: wish.clone(), mounted, views });
        Ok(())
    }

    /// Unmounts one mount point; waits up to `longest` for its users. Who used it still, when they were cut off.
    pub fn unmount(&self, path: &Path, longest: Duration) -> Result<Option<String>, String> {
        let mut sessions = self.sessions.lock();
        self.drop_ended(&mut sessions);
        let Some(index) = sessions.iter().position(|session| session.views.iter().any(|view| view.path == path)) else {
            return Err(format!("{} is no mount of this server; `margay mounts` shows them", path.display()));
        };
        let session = &mut sessions[index];
        let failed = |error| format!("{} cannot be unmounted: {error}", path.display());
        let deadline = self.env.clock.monotonic() + longest;
        let busy = self.detach(path, longest).map_err(failed)?;
        session.views.retain(|view| view.path != path);
        if session.views.is_empty() {
            let left = deadline.saturating_sub(self.env.clock.monotonic());
            if !sessions.remove(index).mounted.end(left) {
                return Ok(busy.or_else(|| Some(holders::NOBODY_SEEN.to_owned())));
            }
        }
        Ok(busy)
    }

    /// Ends all mounts; called once, when the server stops.
    pub fn unmount_all(&self, longest: Duration) {
        let deadline = self.env.clock.monotonic() + longest;
        let left = || deadline.saturating_sub(self.env.clock.monotonic());
        for session in self.sessions.lock().drain(..) {
            let shown = session.wish.path.display();
            for view in session.views.iter().rev() {
                match self.detach(&view.path, left()) {
                    Ok(None) => {}
                    Ok(Some(users)) => tracing::warn!(path = %view.path.display(), users, "still in use, detached"),
                    // Somebody else unmounted it first.
                    Err(_) if session.mounted.state().ended => {}
                    Err(error) => tracing::warn!(%error, path = %view.path.display(), "cannot be unmounted"),
                }
            }
            if !session.mounted.end(left()) {
                tracing::warn!(path = %shown, "its session did not end in time; what was written so far is published");
            }
        }
    }

    /// Drops mounts that others unmounted. A session without mount points gets time to publish written data.
    fn drop_ended(&self, sessions: &mut Vec<MountedSession>) {
        match mount_point::mounts(&self.env) {
            Ok(lines) => {
                let there = |view: &View| lines.iter().any(|line| line.path == view.path && line.kind == MOUNT_KIND);
                sessions.iter_mut().for_each(|session| session.views.retain(there));
            }
            Err(error) => tracing::warn!(%error, "cannot read what is mounted"),
        }
        for session in sessions.extract_if(.., |session| session.views.is_empty() || session.mounted.ended()) {
            session.mounted.end(END_TIME_MAX);
        }
    }

    /// Who used it to the end, if anybody did; says at once for whom it waits.
    fn detach(&self, path: &Path, longest: Duration) -> std::io::Result<Option<String>> {
        *self.cut_off.lock() = None;
        let begun = self.env.clock.monotonic();
        let mut has_told = false;
        loop {
            match mount_point::unmount(path, false) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                done => return done.map(|()| None),
            }
            let waited = self.env.clock.monotonic().saturating_sub(begun);
            if waited >= longest {
                // While it is still at its place.
                let users = holders::text(&self.env, path);
                *self.cut_off.lock() = Some(users.clone());
                return mount_point::unmount(path, true).map(|()| Some(users));
            }
            if !has_told && waited >= TELL_AFTER {
                let (users, seconds) = (holders::text(&self.env, path), (longest - waited).as_secs());
                tracing::warn!(path = %path.display(), users, seconds, "it is in use: waiting before it is detached");
                has_told = true;
            }
            self.env.clock.sleep(BUSY_RETRY);
        }
    }

    /// For `margay mounts` and `margay status`.
    pub fn status(&self) -> Value {
        let mut sessions = self.sessions.lock();
        self.drop_ended(&mut sessions);
        let rows = sessions.iter().flat_map(|session| {
            let state = session.mounted.state();
            let mount = session.mounted.mount();
            let (late_notices, is_taken_over) = (mount.late_notices(), mount.is_taken_over());
            session.views.iter().enumerate().map(move |(index, view)| {
                json!({
                    "path": view.path.display().to_string(),
                    "bucket": session.wish.bucket,
                    "prefix": view.prefix,
                    "view": index > 0,
                    "read_only": view.read_only,
                    "open_files": state.open_files,
                    "late_notices": late_notices,
                    "taken_over": is_taken_over,
                })
            })
        });
        Value::Array(rows.collect())
    }
}

/// Who writes there already, and what can be done.
fn taken_by(holder: &MountHolder) -> String {
    let MountHolder { host, address, place, since, shared } = holder;
    let server = match (host.is_empty(), address.is_empty()) {
        (false, false) => format!("{host} ({address})"),
        (true, false) => address.clone(),
        (false, true) => host.clone(),
        (true, true) => "another server".to_owned(),
    };
    let (how, or) = match shared {
        true => (" and shared", "with -o shared, or read-only (-o ro)"),
        false => ("", "read-only (-o ro)"),
    };
    format!(
        "{place} is mounted read-write{how} by {server} since {}; mount it {or}, or unmount it there",
        iso_time(*since)
    )
}

fn slash(prefix: &str) -> String {
    if prefix.is_empty() { String::new() } else { format!("/{prefix}") }
}

/// Adds a bind mount to a bucket's session, whose options it inherits.
fn add_view(session: &mut MountedSession, wish: &MountWish) -> Result<(), String> {
    let refuse = |why: &str| {
        let first = session.views.first().map_or(&session.wish.path, |view| &view.path);
        Err(format!("{} is mounted on {} already; {why}", wish.bucket, first.display()))
    };
    let same = MountChoice { read_only: session.wish.choice.read_only, ..wish.choice.clone() } == session.wish.choice;
    let none = wish.choice == MountChoice { read_only: wish.choice.read_only, ..MountChoice::default() };
    if !(same || none) || (session.wish.choice.read_only && !wish.choice.read_only) {
        return refuse("a second mount of a bucket takes the options of the first (it may be ro besides)");
    }
    let Some(view) = session.views.iter().find(|view| wish.prefix.starts_with(&view.prefix)).cloned() else {
        return refuse("a second mount must lie inside the first: unmount that one, or mount the bucket itself first");
    };
    let mut below = PathBuf::new();
    for name in wish.prefix[view.prefix.len()..].split_terminator('/') {
        use std::os::unix::ffi::OsStringExt;
        let mut bytes = Vec::new();
        names::shown(name, false, &mut bytes);
        below.push(std::ffi::OsString::from_vec(bytes));
    }
    let read_only = wish.choice.read_only && !session.wish.choice.read_only;
    if let Err(error) = mount_point::bind(&view.path, &below, &wish.path, read_only) {
        if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
            return Err(format!("there is no directory {}{}", wish.bucket, slash(&wish.prefix)));
        }
        return refuse(&format!("showing it a second time (a bind mount) failed: {error}"));
    }
    tracing::info!(path = %wish.path.display(), from = %view.path.join(&below).display(), "mounted as a view");
    session.views.push(View { path: wish.path.clone(), prefix: wish.prefix.clone(), read_only: wish.choice.read_only });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_it_is_told_in_a_line_with_what_to_do() {
        let since = margay_env::Timestamp(1_700_000_000_000_000_000);
        let (host, address, place) = ("gate-1".to_owned(), "10.0.0.1:9002".to_owned(), "photos/".to_owned());
        let holder = MountHolder { host, address, place, since, shared: false };
        assert_eq!(
            taken_by(&holder),
            "photos/ is mounted read-write by gate-1 (10.0.0.1:9002) since 2023-11-14T22:13:20.000Z; mount it read-only (-o ro), \
             or unmount it there"
        );
        let shared = taken_by(&MountHolder { shared: true, address: String::new(), ..holder });
        assert!(
            shared.contains("read-write and shared by gate-1 since") && shared.contains("with -o shared"),
            "{shared}"
        );
    }

    #[test]
    fn a_mount_is_named_by_bucket_and_directory() {
        let wish = MountWish::parse("photos/2026=/no/where", MountChoice::default()).unwrap();
        assert_eq!((&*wish.bucket, &*wish.prefix, &*wish.path), ("photos", "2026/", Path::new("/no/where")));
        assert_eq!(wish.source(), "margay:photos/2026/");
        let whole = MountWish::parse("photos/=/no/where", MountChoice::default()).unwrap();
        assert_eq!((&*whole.bucket, &*whole.prefix), ("photos", ""));
        for wrong in ["photos", "photos=", "=/mnt", "/=/mnt", "Photos=/mnt", "ab/photos=/mnt"] {
            assert!(MountWish::parse(wrong, MountChoice::default()).is_err(), "{wrong}");
        }
    }
}
