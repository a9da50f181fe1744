//! Lists a directory of the bucket and enters what is there.
//!
//! Why:        a directory's rows are read for the first time long after the mount began, and a bucket may have more of them
//!             than anybody reads.
//! Invariants: L1 a directory counts as listed when its last page is entered; after a crash before that it is listed again, and
//!                names that are there stay as they are.
//!             L2 one listing of a directory at a time, for all who wait.
//!             L3 attributes that a listing does not have come from a HEAD of each object. Both make the same entry.
//! Not here:   who waits (tracked), the HEADs (heads), bytes (bytes).

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use margay_client::ClientError;
use margay_client::upstream::{Described, Upstream};
use margay_env::{Clock, Timestamp};
use margay_meta::EngineError;
use margay_meta::unready::Wait;
use margay_rows::record::entry::EMPTY_ETAG;
use margay_rows::record::{Data, UpstreamObject};
use margay_rows::{Ino, key};
use margay_volume::{ETag, Imported, ImportedBytes, ImportedKind, Volume};
use md5::{Digest, Md5};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::attributes::{self, ObjectAttributes, kept_headers, write_id_of};
use crate::bytes::segment_of;
use crate::given::{self, Owned};
use crate::heads::{Found, described};
use crate::opens::Opens;
use crate::pages::{Listed, Page, Pages};
use crate::runtime::Requests;
use crate::silence::{SILENT_LOOK_EVERY, SILENT_TIME_MAX, told, unless_silent};
use crate::tracked::{Lister, State, Tracked, entering};
use crate::xattrs;

/// A page of a listing, or its HEADs, take no longer, while the bucket answers others; requests are tried again meanwhile.
const PAGE_TIME_MAX: Duration = Duration::from_secs(60);
/// Directories that are listed at once for callers without a thread: each takes one here.
const LISTINGS_MAX: usize = 64;
/// EACCES of Linux.
const NO_ACCESS: i32 = 13;
/// Entries of one batch.
const ENTRIES_PER_BATCH: usize = 500;

/// What an entry replaces, and which files go without being replaced: names and numbers.
pub(crate) type Gone = Vec<(String, Ino)>;

/// A key's rows, as they are entered.
pub(crate) type Rows = Vec<(Vec<u8>, Option<Vec<u8>>)>;

#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) tracked: Arc<Tracked>,
    pub(crate) volume: Arc<Volume>,
    bucket: String,
    pub(crate) upstream: Upstream,
    pub(crate) pages: Arc<Pages>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) opens: Opens,
    /// Directories that are being listed (L2).
    turns: Mutex<HashMap<Ino, Arc<Mutex<()>>>>,
    /// Those for which no thread waits, and how it went.
    begun: Mutex<HashMap<Ino, watch::Receiver<Outcome>>>,
    turnstile: Semaphore,
}

/// How a listing went, once it has.
type Outcome = Option<Result<(), Unlisted>>;

/// Why something was not listed.
#[derive(Clone, Debug)]
pub(crate) struct Unlisted {
    why: String,
    /// The store has decided so: it is not waited for.
    is_refused: bool,
}

impl From<String> for Unlisted {
    fn from(why: String) -> Unlisted {
        Unlisted { why, is_refused: false }
    }
}

impl From<&str> for Unlisted {
    fn from(why: &str) -> Unlisted {
        why.to_owned().into()
    }
}

impl From<Unlisted> for String {
    fn from(unlisted: Unlisted) -> String {
        unlisted.why
    }
}

impl From<Unlisted> for EngineError {
    fn from(Unlisted { why, is_refused }: Unlisted) -> EngineError {
        if !is_refused {
            return EngineError::Unavailable(why);
        }
        tracing::warn!(why, "the bucket refuses a listing");
        EngineError::Io(std::io::Error::from_raw_os_error(NO_ACCESS))
    }
}

/// Waits for a listing that goes on by itself.
fn waited_for(mut listed: watch::Receiver<Outcome>) -> Wait {
    Box::pin(async move {
        let outcome = listed.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| Err("the mount ends".into())).map_err(EngineError::from)
    })
}

/// The ETag of an object as an entry has it: 16 bytes and a number of parts, whatever the store's looks like.
pub(crate) fn parse_etag(text: &str) -> ETag {
    let plain = text.trim_matches('"');
    let (digits, parts) = plain.split_once('-').unwrap_or((plain, "0"));
    let mut digest = [0; 16];
    let byte = |index: usize| u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok();
    let is_hex = digits.len() == 32 && (0..16).all(|index| byte(index).map(|byte| digest[index] = byte).is_some());
    match parts.parse() {
        Ok(parts) if is_hex => ETag { digest, parts },
        _ => ETag { digest: Md5::digest(plain).into(), parts: 0 },
    }
}

impl Listing {
    pub(crate) fn new(
        tracked: Arc<Tracked>,
        volume: Arc<Volume>,
        bucket: &str,
        upstream: Upstream,
        requests: Arc<Requests>,
        clock: Arc<dyn Clock>,
        opens: Opens,
    ) -> Listing {
        let (bucket, pages) = (bucket.to_owned(), Arc::new(Pages::new(upstream.clone(), Arc::clone(&tracked.refusal))));
        let (turns, begun, turnstile) = (Mutex::default(), Mutex::default(), Semaphore::new(LISTINGS_MAX));
        Listing { tracked, volume, bucket, upstream, pages, requests, clock, opens, turns, begun, turnstile }
    }

    /// As one of all who want it (L2).
    fn list_once(&self, directory: Ino) -> Result<(), Unlisted> {
        let turn = Arc::clone(self.turns.lock().entry(directory).or_default());
        let mine = turn.lock();
        // Somebody else may have listed it since.
        let is_unlisted = self.tracked.unlisted.read().contains(&directory);
        let listed = if is_unlisted { self.list_now(directory) } else { Ok(()) };
        drop(mine);
        self.turns.lock().remove(&directory);
        listed
    }

    fn list_now(&self, directory: Ino) -> Result<(), Unlisted> {
        let (path, hidden) = {
            let mut files = self.tracked.files.lock();
            (files.paths.of(&*self.tracked.below, directory), files.paths.temporary_directory())
        };
        let path = path.map_err(|error| error.to_string())?.ok_or("the directory is gone")?;
        let taken = self.names_in(directory)?;
        let (mut token, mut pages) = (None, 0);
        loop {
            pages += 1;
            let Page { listed, next, .. } = self.page((&path, &hidden), token.take(), true)?;
            let found = self.described(&path, listed)?;
            let new: Vec<Found> = found.into_iter().filter(|one| !taken.contains(&one.sort_name)).collect();
            for some in new.chunks(ENTRIES_PER_BATCH) {
                self.enter(directory, some, false)?;
            }
            match next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        self.enter(directory, &[], true)?;
        self.tracked.ages.was_listed(directory, pages);
        self.tracked.unlisted.write().remove(&directory);
        Ok(())
    }

    /// As `Pages::page`; blocks.
    pub(crate) fn page(&self, names: (&str, &str), token: Option<String>, metadata: bool) -> Result<Page, Unlisted> {
        let (pages, path, hidden) = (Arc::clone(&self.pages), names.0.to_owned(), names.1.to_owned());
        self.wait(async move { pages.page((&path, &hidden), token, metadata).await })
    }

    /// Asks for each object of a listing of which it does not say enough, and for the marker of each directory; objects that are gone by now are left out.
    /// Blocks.
    pub(crate) fn described(&self, path: &str, listed: Vec<(String, Listed)>) -> Result<Vec<Found>, Unlisted> {
        let (upstream, path) = (self.upstream.clone(), path.to_owned());
        self.wait(async move { described(&upstream, &path, listed).await })
    }

    /// Somebody's `ls` waits for it, and cannot be interrupted. A bucket that answers nobody is named.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        asked: impl Future<Output = Result<T, ClientError>> + Send + 'static,
    ) -> Result<T, Unlisted> {
        let upstream = self.upstream.clone();
        let limited = async move {
            let silent = || upstream.meter().contact().silent.map(|silence| silence.since);
            let unless_silent = unless_silent(asked, silent, SILENT_TIME_MAX, SILENT_LOOK_EVERY);
            tokio::time::timeout(PAGE_TIME_MAX, unless_silent).await.ok().flatten()
        };
        let answer = self.requests.wait(limited).ok_or("the mount ends")?;
        let why = match answer {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) if !error.is_unanswered() => {
                return Err(Unlisted { why: error.to_string(), is_refused: error.status().is_some() });
            }
            Some(Err(error)) => error.to_string(),
            None => format!("no answer within {} s", SILENT_TIME_MAX.as_secs()),
        };
        Err(told(&self.upstream).unwrap_or_else(|| format!("the bucket {}: {why}", self.upstream.name())).into())
    }

    /// Names that an earlier listing, which was cut off, has entered.
    fn names_in(&self, directory: Ino) -> Result<HashSet<String>, String> {
        let ((start, end), mut names) = (key::entries(directory), HashSet::new());
        let read = self.tracked.below.scan(&start, &end, &mut |row| {
            names.extend(key::parse_entry(row.key).map(|(_, name)| name.to_owned()));
            ControlFlow::Continue(())
        });
        read.map(|_| names).map_err(|error| error.to_string())
    }

    /// `is_last`: the directory is listed with this.
    fn enter(&self, directory: Ino, found: &[Found], is_last: bool) -> Result<(), String> {
        let rows = if is_last { vec![(key::upstream_unlisted(directory), None)] } else { Rows::new() };
        match self.enter_over(directory, (&[], rows), found)? {
            true => Ok(()),
            false => Err("the directory or a name in it is not free".to_owned()),
        }
    }

    /// Enters what was found in place of files that go, and writes these rows too; false if the names are not as the caller
    /// saw them.
    pub(crate) fn enter_over(
        &self,
        directory: Ino,
        gone: (&[(String, Ino)], Rows),
        found: &[Found],
    ) -> Result<bool, String> {
        let numbered = |one| Ok((self.volume.new_number().map_err(|error| error.to_string())?, one));
        let found: Vec<(Ino, &Found)> = found.iter().map(numbered).collect::<Result<_, String>>()?;
        self.enter_as(directory, gone, &found)
    }

    /// As `enter_over`, with these numbers.
    pub(crate) fn enter_as(
        &self,
        directory: Ino,
        (gone, mut rows): (&[(String, Ino)], Rows),
        found: &[(Ino, &Found)],
    ) -> Result<bool, String> {
        let (mut entries, mut below) = (Vec::with_capacity(found.len()), Vec::new());
        let now = self.clock.now();
        for (ino, one) in found {
            let ino = *ino;
            let theirs = imported(ino, one, now);
            if let Some(there) = &one.there {
                let object = object_of(one, &theirs, there);
                rows.push((key::upstream_object(ino), Some(object.encode())));
                rows.push((key::upstream_bytes(ino.0), Some(ino.0.to_be_bytes().to_vec())));
            }
            let entry = one.attributes.as_ref().map_or(theirs, |own| imported(ino, &one.with(own), now));
            if matches!(entry.kind, ImportedKind::Directory { .. }) {
                rows.push((key::upstream_unlisted(ino), Some(vec![1])));
                below.push(ino);
            }
            entries.push(entry);
        }
        // Before anybody can find them.
        self.tracked.unlisted.write().extend(&below);
        let entered = entering(|| self.volume.import_over(&self.bucket, directory, gone, &entries, &rows));
        entered.map_err(|error| error.to_string())
    }

    /// Enters one object, if its directory is here and was listed.
    pub(crate) fn enter_key(&self, object_key: &str, there: &Described) -> Result<(), String> {
        let named = self.tracked.name_of(object_key).map_err(|error| error.to_string())?;
        let (directory, sort_name) = named.ok_or("its directory is not here")?;
        if self.tracked.unlisted.read().contains(&directory) {
            return Ok(());
        }
        self.enter(directory, &[Found::object(object_key, &sort_name, there.clone())], false)
    }
}

impl Lister for Listing {
    fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    fn begin_list(self: Arc<Self>, directory: Ino) -> Wait {
        let mut begun = self.begun.lock();
        if let Some(listed) = begun.get(&directory) {
            return waited_for(listed.clone());
        }
        let (tell, listed) = watch::channel(None);
        begun.insert(directory, listed.clone());
        drop(begun);
        let own = Arc::clone(&self);
        self.requests.spawn(async move {
            let turn = own.turnstile.acquire().await;
            let lists = Arc::clone(&own);
            let outcome = tokio::task::spawn_blocking(move || lists.list_once(directory)).await;
            drop(turn);
            own.begun.lock().remove(&directory);
            // Nobody may wait any more.
            let _ = tell.send(Some(outcome.unwrap_or_else(|error| Err(error.to_string().into()))));
        });
        waited_for(listed)
    }

    fn begin_refresh(self: Arc<Self>, directory: Ino) -> Wait {
        self.begin_refresh_for_a_while(directory)
    }

    fn refresh(self: Arc<Self>, directory: Ino) {
        self.refresh_for_a_while(directory);
    }

    fn list(&self, directory: Ino) -> Result<(), EngineError> {
        self.list_once(directory).map_err(EngineError::from)
    }
}

/// `now` is the time of a directory without a marker.
pub(crate) fn imported(ino: Ino, one: &Found, now: Timestamp) -> Imported {
    let described = one.there.as_ref().map(|there| ObjectAttributes::of(&there.headers)).unwrap_or_default();
    let (uid, gid) = (described.uid.unwrap_or_default(), described.gid.unwrap_or_default());
    let modified = described.modified.unwrap_or(now);
    let sort_name = one.sort_name.clone();
    let is_directory = one.sort_name.ends_with('/');
    let mode = if is_directory { described.rights_of_directory() } else { described.file_mode() };
    let xattrs =
        one.there.as_ref().map(|there| xattrs::of_object(&there.headers, mode, is_directory)).unwrap_or_default();
    if is_directory {
        let kind = ImportedKind::Directory { explicit: one.there.is_some() };
        return Imported { ino, sort_name, mode, uid, gid, modified, xattrs, kind };
    }
    let (mut size, mut etag) =
        one.there.as_ref().map_or((0, EMPTY_ETAG), |there| (there.size, parse_etag(&there.etag)));
    let mut headers = one.there.as_ref().map(|there| kept_headers(&there.headers, size > 0)).unwrap_or_default();
    if let Some(there) = &one.there {
        given::note(&mut headers, &Owned { mode, uid, gid, modified }, |name| attributes::text(&there.headers, name));
    }
    let device = described.device.unwrap_or_default();
    let mut bytes = ImportedBytes::Far(segment_of(ino.0));
    if let Some(target) = described.target.filter(|target| size == 0 && !target.is_empty()) {
        (size, etag) = (target.len() as u64, ETag { digest: Md5::digest(&target).into(), parts: 0 });
        bytes = ImportedBytes::Here(target);
    }
    let kind = ImportedKind::File { size, etag, device, headers, bytes };
    Imported { ino, sort_name, mode, uid, gid, modified, xattrs, kind }
}

/// The object of an entry that has just come from it: nothing differs.
pub(crate) fn object_of(one: &Found, entry: &Imported, there: &Described) -> UpstreamObject {
    let file = entry.file(Data::Inline(Vec::new())).map(|mut file| {
        // As it is stored.
        file.fit_headers();
        State::of_file(&file)
    });
    let state = file.or_else(|| entry.directory().map(|directory| State::of_directory(&directory)));
    let state = state.expect("an entry is a file or a directory");
    UpstreamObject {
        key: one.key.clone(),
        etag: there.etag.clone(),
        write_id: write_id_of(there).to_owned(),
        size: there.size,
        number: entry.ino.0,
        content: state.content,
        attributes: state.attributes,
        modified: one.modified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_etag_is_one_of_ours() {
        let md5 = parse_etag("\"0cc175b9c0f1b6a831c399e269772661\"");
        assert_eq!((md5.digest[0], md5.parts), (0x0c, 0));
        assert_eq!(parse_etag("\"0cc175b9c0f1b6a831c399e269772661-7\"").parts, 7);
        for odd in ["\"x\"", "", "\"0cc175b9c0f1b6a831c399e26977266g\"", "\"0cc175b9c0f1b6a831c399e269772661-x\""] {
            assert_eq!(parse_etag(odd).parts, 0, "{odd}");
        }
        assert_ne!(parse_etag("\"a\""), parse_etag("\"b\""));
    }
}
