//! One client of the workload: random operations on keys of its own and on a few that all write to.
//!
//! Invariants: C1 every PUT has content of its own.  C2 one operation at a time, told to the ledger before it begins.
//! Not here:   what the answers mean (ledger).

use std::cell::RefCell;
use std::rc::Rc;

use margay_env::sim::SimRandom;

use crate::blob::Blob;
use crate::ledger::{Content, Holding, Ledger, Pending, Upload};
use crate::target::{Part, Target, Trouble};
use crate::{Failure, fail};

/// Smallest part but the last.
const PART_BYTES_MIN: usize = 5 << 20;

/// What a client may do.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Longest object, in bytes; most are much shorter.
    pub object_bytes_max: usize,
    /// Share of uploads with a first part of 5 MiB, in percent.
    pub long_uploads_percent: u64,
    /// Operations in one life.
    pub operations: u64,
}

/// Whether an error is to be expected now.
pub type Excuse = Rc<dyn Fn(&str) -> bool>;

#[allow(missing_debug_implementations, reason = "it ends with the life that it works in")]
pub struct Client<T> {
    pub target: Rc<T>,
    pub ledger: Rc<RefCell<Ledger>>,
    pub number: usize,
    pub random: SimRandom,
    pub habits: Habits,
    pub excuse: Excuse,
}

/// Whether to go on.
enum Next {
    On,
    Stop,
}

const FILES: [&str; 13] = [
    "c#/a", "c#/b", "c#/d/a", "c#/d/b/c", "c#/e/", "c#/e/x", "c#//x", "c#-top", "s/c#a", "s/c#b", "s/t/c#", "s/c#/",
    "s/c#/y",
];
const FOLDERS: [&str; 7] = ["c#/d/", "c#/e/", "c#/f/", "c#/d/b/", "s/c#/", "g/c#/", "g/h/c#/"];
const SHARED: [&str; 3] = ["k0", "s/k1", "k/2"];

impl<T: Target> Client<T> {
    /// Works until the life ends or a fault strikes.
    pub async fn run(self) -> Result<(), Failure> {
        for _ in 0..self.habits.operations {
            if let Next::Stop = self.step().await? {
                break;
            }
        }
        Ok(())
    }

    fn pick(&self, names: &[&str], client: usize) -> String {
        names[self.random.below(names.len() as u64) as usize].replace('#', &client.to_string())
    }

    fn key(&self) -> String {
        self.pick(&FILES, self.number)
    }

    fn blob(&self) -> Blob {
        let len = match self.random.below(20) {
            0 => 0,
            1..5 => 8 + self.random.below(120),
            5..14 => 130 + self.random.below(4000),
            14..18 => 130 + self.random.below(70_000),
            _ => 130 + self.random.below(self.habits.object_bytes_max as u64),
        };
        Blob { tag: self.random.below(u64::MAX), len: (len as usize).min(self.habits.object_bytes_max) }
    }

    fn now(&self) -> Holding {
        self.ledger.borrow().owners[self.number].now.clone()
    }

    fn begin(&self, what: String, after: Holding) {
        let pending = Pending { what, after, new_upload: None, shown: false };
        self.ledger.borrow_mut().begin(self.number, pending);
    }

    /// Books the answer. `wanted` is whether the operation had to succeed.
    fn end(&self, answer: Result<bool, Trouble>, wanted: bool) -> Result<Next, Failure> {
        let mut ledger = self.ledger.borrow_mut();
        if ledger.frozen() {
            return Ok(Next::Stop);
        }
        let what = ledger.owners[self.number].pending.as_ref().map_or(String::new(), |pending| pending.what.clone());
        match answer {
            Ok(happened) if happened == wanted => {
                if happened {
                    ledger.done(self.number, None)
                } else {
                    ledger.refused(self.number)?
                }
                Ok(Next::On)
            }
            Ok(happened) => fail!("{what}: the answer was {happened}, it had to be {wanted}"),
            Err(trouble) => {
                let text = trouble.to_string();
                if !(self.excuse)(&text) {
                    fail!("{what}: {text}");
                }
                match trouble {
                    Trouble::Refused(_) => {
                        ledger.refused(self.number)?;
                        Ok(Next::On)
                    }
                    Trouble::Unknown(_) => Ok(Next::Stop),
                }
            }
        }
    }

    async fn step(&self) -> Result<Next, Failure> {
        match self.random.below(100) {
            0..30 => self.put().await,
            30..42 => self.delete().await,
            42..50 => self.copy().await,
            50..57 => self.rename().await,
            57..63 => self.rename_folder().await,
            63..73 => self.multipart().await,
            73..80 => self.read_mine().await,
            80..85 => self.read_other().await,
            85..88 => self.list().await,
            88..95 => self.write_shared().await,
            _ => self.read_shared().await,
        }
    }

    async fn put(&self) -> Result<Next, Failure> {
        let (key, blob, mut after) = (self.key(), self.blob(), self.now());
        after.objects.insert(key.clone(), Content::of(&blob.bytes()));
        self.begin(format!("PUT {key} ({} bytes)", blob.len), after);
        let answer = self.target.put(&key, blob).await;
        self.end(answer.map(|()| true), true)
    }

    async fn delete(&self) -> Result<Next, Failure> {
        let (key, mut after) = (self.key(), self.now());
        after.objects.remove(&key);
        self.begin(format!("DELETE {key}"), after);
        let answer = self.target.delete(&key).await;
        self.end(answer.map(|()| true), true)
    }

    async fn copy(&self) -> Result<Next, Failure> {
        let (from, to, mut after) = (self.key(), self.key(), self.now());
        if from == to {
            return Ok(Next::On);
        }
        let source = after.objects.get(&from).copied();
        if let Some(content) = source {
            after.objects.insert(to.clone(), content);
        }
        self.begin(format!("copy {from} to {to}"), after);
        let answer = self.target.copy(&from, &to).await;
        self.end(answer, source.is_some())
    }

    async fn rename(&self) -> Result<Next, Failure> {
        let (from, to, mut after) = (self.key(), self.key(), self.now());
        if from.ends_with('/') || to.ends_with('/') {
            return Ok(Next::On);
        }
        let source = after.objects.remove(&from);
        if let Some(content) = source {
            after.objects.insert(to.clone(), content);
        }
        self.begin(format!("rename {from} to {to}"), after);
        let answer = self.target.rename(&from, &to).await;
        self.end(answer, source.is_some())
    }

    async fn rename_folder(&self) -> Result<Next, Failure> {
        let (from, to) = (self.pick(&FOLDERS, self.number), self.pick(&FOLDERS, self.number));
        let mut after = self.now();
        let below = |holding: &Holding, folder: &str| -> Vec<String> {
            holding.objects.keys().filter(|key| key.starts_with(folder)).cloned().collect()
        };
        let moved = below(&after, &from);
        let fine = !moved.is_empty() && (from == to || (!to.starts_with(&from) && below(&after, &to).is_empty()));
        if fine && from != to {
            for key in moved {
                let content = after.objects.remove(&key).expect("just listed");
                after.objects.insert(format!("{to}{}", &key[from.len()..]), content);
            }
        }
        self.begin(format!("rename {from} to {to}"), after);
        let answer = self.target.rename(&from, &to).await;
        self.end(answer, fine)
    }

    /// One step of an upload: begin one, or go on with one, or end it.
    async fn multipart(&self) -> Result<Next, Failure> {
        let mut after = self.now();
        let open = after.uploads.iter().next().map(|(id, upload)| (id.clone(), upload.clone()));
        let Some((id, upload)) = open.filter(|_| after.uploads.len() > 1 || self.random.chance(70)) else {
            return self.create_upload().await;
        };
        let key = upload.key.clone();
        if !upload.nameless() && (upload.parts.is_empty() || self.random.chance(30)) {
            return self.put_part(after, id, upload).await;
        }
        if upload.nameless() || self.random.chance(25) {
            after.uploads.remove(&id);
            self.begin(format!("abort of {id} at {key}"), after);
            let answer = self.target.abort(&key, &id).await;
            return self.end(answer.map(|()| true), true);
        }
        let mut parts: Vec<(u16, Part)> = upload.parts.into_iter().collect();
        // Only the last may be short.
        let long = parts.iter().take_while(|(_, part)| part.blob.len >= PART_BYTES_MIN).count();
        parts.truncate(long + 1);
        after.uploads.remove(&id);
        after.objects.insert(key.clone(), Content::of_parts(parts.iter().map(|(_, part)| &part.blob)));
        self.begin(format!("completion of {id} at {key}"), after);
        let answer = self.target.complete(&key, &id, &parts).await;
        self.end(answer.map(|()| true), true)
    }

    async fn create_upload(&self) -> Result<Next, Failure> {
        let key = self.key();
        let new_upload = Some(key.clone());
        let pending = Pending { what: format!("upload for {key}"), after: self.now(), new_upload, shown: false };
        self.ledger.borrow_mut().begin(self.number, pending);
        match self.target.create_upload(&key).await {
            Ok(id) => {
                let mut ledger = self.ledger.borrow_mut();
                if ledger.frozen() {
                    return Ok(Next::Stop);
                }
                ledger.done(self.number, Some(id));
                Ok(Next::On)
            }
            Err(trouble) => self.end(Err(trouble), true),
        }
    }

    async fn put_part(&self, mut after: Holding, id: String, upload: Upload) -> Result<Next, Failure> {
        let long = self.random.chance(self.habits.long_uploads_percent);
        let len = if long { PART_BYTES_MIN + self.random.below(1000) as usize } else { self.blob().len.max(1) };
        let (number, blob) = (1 + self.random.below(3) as u16, Blob { tag: self.random.below(u64::MAX), len });
        let key = upload.key;
        // The ETag is known when the answer comes; a part that was never answered is compared by its length.
        let part = Part { blob, etag: String::new() };
        let parts = &mut after.uploads.get_mut(&id).expect("it was found there").parts;
        parts.insert(number, part);
        self.begin(format!("part {number} of {id} at {key}"), after);
        let answer = self.target.put_part(&key, &id, number, blob).await;
        if let Ok(etag) = &answer
            && let Some(pending) = &mut self.ledger.borrow_mut().owners[self.number].pending
            && let Some(upload) = pending.after.uploads.get_mut(&id)
        {
            upload.parts.insert(number, Part { blob, etag: etag.clone() });
        }
        self.end(answer.map(|_| true), true)
    }

    /// Looks at the answer of a read.
    fn read<V>(&self, what: &str, answer: Result<V, Trouble>) -> Result<Option<V>, Failure> {
        match answer {
            _ if self.ledger.borrow().frozen() => Ok(None),
            Ok(value) => Ok(Some(value)),
            Err(trouble) if (self.excuse)(&trouble.to_string()) => Ok(None),
            Err(trouble) => fail!("{what}: {trouble}"),
        }
    }

    async fn read_mine(&self) -> Result<Next, Failure> {
        let key = self.key();
        let answer = self.target.get(&key).await;
        let Some(found) = self.read(&format!("GET {key}"), answer)? else { return Ok(Next::Stop) };
        let (found, right) = (found.map(|bytes| Content::of(&bytes)), self.now().objects.get(&key).copied());
        if found != right {
            fail!("GET {key} gave {found:?}, it had to be {right:?}");
        }
        Ok(Next::On)
    }

    async fn read_other(&self) -> Result<Next, Failure> {
        let clients = self.ledger.borrow().owners.len();
        let key = self.pick(&FILES, self.random.below(clients as u64) as usize);
        let answer = self.target.get(&key).await;
        let Some(found) = self.read(&format!("GET {key}"), answer)? else { return Ok(Next::Stop) };
        // An empty object is like any other empty one: it proves nothing.
        let found = found.filter(|bytes| bytes.len() >= 8).map(|bytes| Content::of(&bytes));
        self.ledger.borrow_mut().shown(&key, found)?;
        Ok(Next::On)
    }

    async fn list(&self) -> Result<Next, Failure> {
        let prefix = self.pick(&["c#/", "c#/d/", "c#", "s/c#"], self.number);
        let answer = self.target.list(&prefix).await;
        let Some(listed) = self.read(&format!("listing of {prefix}"), answer)? else { return Ok(Next::Stop) };
        let now = self.now();
        // c1 is the beginning of c10 too.
        let mine = |key: &str| crate::ledger::owner_of(key) == Some(self.number);
        let listed: Vec<(String, u64)> = listed.into_iter().filter(|(key, _)| mine(key)).collect();
        let right = now.objects.iter().filter(|(key, _)| key.starts_with(&prefix));
        let right: Vec<(String, u64)> = right.map(|(key, content)| (key.clone(), content.len)).collect();
        if listed != right {
            fail!("listing of {prefix} gave {listed:?}, it had to be {right:?}");
        }
        Ok(Next::On)
    }

    async fn write_shared(&self) -> Result<Next, Failure> {
        let key = self.pick(&SHARED, 0);
        let blob =
            self.random.chance(70).then(|| Blob { tag: self.random.below(u64::MAX), len: self.blob().len.max(16) });
        let content = blob.map(|blob| Content::of(&blob.bytes()));
        let id = self.ledger.borrow_mut().begin_shared(&key, content);
        let answer = match blob {
            Some(blob) => self.target.put(&key, blob).await,
            None => self.target.delete(&key).await,
        };
        let mut ledger = self.ledger.borrow_mut();
        if ledger.frozen() {
            return Ok(Next::Stop);
        }
        match answer {
            Ok(()) => {
                ledger.done_shared(&key, id);
                Ok(Next::On)
            }
            Err(trouble) if !(self.excuse)(&trouble.to_string()) => fail!("a write to {key}: {trouble}"),
            Err(Trouble::Refused(_)) => {
                ledger.refused_shared(&key, id);
                Ok(Next::On)
            }
            Err(Trouble::Unknown(_)) => Ok(Next::Stop),
        }
    }

    async fn read_shared(&self) -> Result<Next, Failure> {
        let key = self.pick(&SHARED, 0);
        let begun = self.ledger.borrow_mut().moment();
        let answer = self.target.get(&key).await;
        let Some(found) = self.read(&format!("GET {key}"), answer)? else { return Ok(Next::Stop) };
        self.ledger.borrow_mut().shown_shared(&key, found.map(|bytes| Content::of(&bytes)), begun)?;
        Ok(Next::On)
    }
}
