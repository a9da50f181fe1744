//! All users and keys: stored in the volume and cached in memory.
//!
//! Why:        the S3 door looks a key up on every request; an operator's order must hold for the next request.
//! Layout:     `seal` encrypts secrets, `session` creates and opens tokens, `orders` parses and answers orders in JSON.
//! Invariants: W1 requests see the stored state: the cache is replaced after the commit, before the order is answered.
//!             W2 secrets are unencrypted in memory only.  W3 the root keys work whatever is stored.
//!             W4 changes by another process apply to requests here after at most `LOOK_EVERY` and one read, also if the feed is late;
//!                orders, and what is asked about users, see them at once.
//!             W5 an order is answered when all processes decide by it. One that says nothing is waited for `KNOWN_TIME_MAX`; by then what
//!                it knows is older than `CONFIRMED_FOR`, and a request there looks before it is decided. Programs of before do neither.
//! Locking:    one lock serializes orders, and within it one the reads of the rows; requests read an atomic pointer and never wait for it.
//! Not here:   the meaning of records, and which changes are valid (margay-iam).

mod orders;
mod seal;
mod session;

use std::collections::HashMap;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use margay_env::{Env, Timestamp};
use margay_iam::registry::{Account, Change, ChangeError, Identity, Kind, Order, Record, Registry};
use margay_s3::auth::{Credential, Secret};
use margay_s3::identities::{
    AccountName, CaughtUp, Found, Identities as Asked, NewKey, NewSession, OrderError, Ordered, SessionKeys,
};
use margay_volume::{BehindSession, Error, IdentityChange, KeyFile, Volume};

pub use self::orders::{NotOrdered, Wanted, WantedUser};
pub use self::seal::{FILE as KEY_FILE, SealKey};
use crate::AccountsError;
use crate::fingerprint;
use crate::root_keys::{self, RootKeys};

/// Path of orders, on the control socket and the admin port.
pub const ORDER_PATH: &str = "/identities";
/// Maximum size of an order, in bytes.
pub const ORDER_BYTES_MAX: usize = 64 * 1024;
/// Pause before identities are read again after an error.
const PAUSE_UNREAD: Duration = Duration::from_secs(1);
/// Keys that are not known are looked for in the rows at most so often in such a time: anybody can send them.
const LOOKS_MAX: u32 = 50;
const LOOKS_TIME: Duration = Duration::from_secs(1);
/// Time between two looks whether another process has changed identities.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A look that takes longer is given up, and the next one goes through another connection.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Requests are decided by what was the newest so long ago, or less.
const CONFIRMED_FOR: Duration = Duration::from_millis(1500);
const _: () = assert!(CONFIRMED_FOR.as_millis() < KNOWN_TIME_MAX.as_millis());
/// The pause before an order is decided again is a part of this, longer with each try.
const PAUSE_BESIDE_OTHERS_MS: u64 = 4;
/// For how long an order waits for other processes to know it; a tenth of a second is usual.
const KNOWN_TIME_MAX: Duration = Duration::from_secs(2);
/// Time between two looks at what they know.
const KNOWN_EVERY: Duration = Duration::from_millis(10);
/// How often an order is decided again after another process changed the identities.
const TRIES_MAX: u32 = 16;

/// All identities of the server.
pub struct Identities {
    volume: Arc<Volume>,
    env: Env,
    seal: SealKey,
    root: Option<(String, Secret)>,
    root_identity: Arc<Identity>,
    state: ArcSwap<State>,
    turn: tokio::sync::Mutex<()>,
    /// Since when keys that are not known were looked for in the rows, and how often.
    looks: parking_lot::Mutex<(Duration, u32)>,
    /// Of the monotonic clock: at that moment, or later, the state was the newest.
    confirmed_ms: AtomicU64,
    /// Held from a read of the rows until it is the state: an older one never replaces a newer one.
    reading: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Identities")
            .field("users", &self.state.load().registry.users.len())
            .finish_non_exhaustive()
    }
}

/// The cached state that requests see.
#[derive(Default)]
struct State {
    registry: Arc<Registry>,
    secrets: HashMap<String, Secret>,
    generation: u64,
}

/// The account of the root keys, as the S3 door knows it.
pub fn root_account() -> Account {
    let options = margay_s3::Options::default();
    Account {
        id: options.account_id,
        canonical_id: options.owner_id,
        display_name: options.owner_name,
        email: None,
        short_arns: false,
    }
}

impl Identities {
    /// Reads the stored identities. `keys` are absent where no door is open.
    pub async fn open(
        env: &Env,
        data: &Path,
        volume: &Arc<Volume>,
        keys: Option<&RootKeys>,
    ) -> Result<Identities, AccountsError> {
        let identities = Identities {
            volume: Arc::clone(volume),
            env: env.clone(),
            seal: fingerprint::settle(volume, KeyFile::Identity, |known| SealKey::load(env, data, known))?,
            root: keys.map(|keys| (keys.access_key.clone(), Secret::new(&keys.secret_key))),
            root_identity: Arc::new(Identity::root(Arc::new(root_account()))),
            state: ArcSwap::default(),
            turn: tokio::sync::Mutex::new(()),
            looks: parking_lot::Mutex::default(),
            confirmed_ms: AtomicU64::new(0),
            reading: tokio::sync::Mutex::new(()),
        };
        identities.refresh().await.map_err(AccountsError::Volume)?;
        Ok(identities)
    }

    /// As `open`, in a process that answers requests and runs `follow` from then on: orders elsewhere wait for it (W5).
    pub async fn open_to_follow(
        env: &Env,
        data: &Path,
        volume: &Arc<Volume>,
        keys: Option<&RootKeys>,
    ) -> Result<Identities, AccountsError> {
        volume.announce_identities().await.map_err(AccountsError::Volume)?;
        Identities::open(env, data, volume, keys).await
    }

    /// Reads all stored identities again and replaces the cache.
    async fn refresh(&self) -> Result<(), Error> {
        let _reading = self.reading.lock().await;
        let began = self.env.clock.monotonic();
        let stored = self.volume.identities().await?;
        let mut records = vec![Record::Account(root_account())];
        for row in &stored.rows {
            match Kind::of_byte(row.kind).and_then(|kind| Record::decode(kind, &row.content)) {
                Some(record) => records.push(record),
                None => tracing::error!(name = row.name, "the record of an identity cannot be read and is left out"),
            }
        }
        let registry = Registry::new(records);
        let mut secrets = HashMap::new();
        for key in registry.keys.values() {
            match self.seal.open_secret(&key.id, &key.sealed) {
                Some(secret) => drop(secrets.insert(key.id.clone(), Secret::new(&secret))),
                None => tracing::error!(
                    key = key.id,
                    "the secret of an access key cannot be decrypted: is the file identity-key the one that it was sealed under?"
                ),
            }
        }
        let registry = Arc::new(registry);
        self.state.store(Arc::new(State { registry, secrets, generation: stored.generation }));
        self.confirmed(began);
        Ok(())
    }

    /// Reads them again if they have changed: a request about users shows what another process has answered before.
    async fn read_again(&self) -> Result<(), Error> {
        if self.is_behind().await? { self.refresh().await } else { Ok(()) }
    }

    /// Whether another process has changed them since they were read.
    async fn is_behind(&self) -> Result<bool, Error> {
        let began = self.env.clock.monotonic();
        let is_newest = self.volume.identities_generation().await? == self.state.load().generation;
        if is_newest {
            self.confirmed(began);
        }
        Ok(!is_newest)
    }

    /// What is decided by here was the newest at some moment since then.
    fn confirmed(&self, began: Duration) {
        self.confirmed_ms.fetch_max(u64::try_from(began.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Reads identities again when another process has changed one, and tells others so; never returns (W4).
    pub async fn follow(self: Arc<Self>) {
        // The session and the generation that others were told.
        let mut told = None;
        loop {
            let changed = self.volume.identities_changed();
            let Ok(looked) = tokio::time::timeout(ANSWER_TIME_MAX, self.is_behind()).await else { continue };
            // To read all of them may take longer than a look.
            let read = match looked {
                Ok(true) => self.refresh().await,
                looked => looked.map(|_| ()),
            };
            if let Err(error) = read {
                tracing::warn!(%error, "users and keys cannot be read again; trying again");
                tokio::time::sleep(PAUSE_UNREAD).await;
                continue;
            }
            let now = (self.volume.session(), self.state.load().generation);
            if told != Some(now) {
                match tokio::time::timeout(ANSWER_TIME_MAX, self.volume.know_identities(now.1)).await {
                    Ok(Ok(())) => told = Some(now),
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "other servers cannot be told which users are known here; trying again");
                    }
                    Err(_) => {}
                }
            }
            // The feed that tells of changes may be late.
            let _ = tokio::time::timeout(LOOK_EVERY, changed).await;
        }
    }

    /// Carries out an order, and waits for other processes.
    async fn carry_out(&self, order: Order) -> Result<(), OrderError> {
        let generation = self.store(order).await?;
        let mut behind = Ok(Vec::new());
        if tokio::time::timeout(KNOWN_TIME_MAX, self.is_known(generation, &mut behind)).await.is_err() {
            match behind {
                Ok(behind) => tracing::warn!(
                    servers = behind.into_iter().map(|one| one.process).collect::<Vec<_>>().join(", "),
                    "a change of users was answered although these servers have not said that they know it; they look before they answer"
                ),
                Err(error) => tracing::warn!(%error, "whether other servers know a change of users cannot be read"),
            }
        }
        Ok(())
    }

    /// Resolves when all other processes decide by this generation (W5); `behind` has those that do not.
    async fn is_known(&self, generation: u64, behind: &mut Result<Vec<BehindSession>, Error>) {
        loop {
            *behind = self.volume.behind_identities(generation).await;
            if behind.as_ref().is_ok_and(Vec::is_empty) {
                return;
            }
            tokio::time::sleep(KNOWN_EVERY).await;
        }
    }

    /// The change; requests here are decided by the generation that it returns.
    async fn store(&self, order: Order) -> Result<u64, OrderError> {
        let failed = |error| not_done("the change cannot be stored", error);
        let _turn = self.turn.lock().await;
        for tries in 1..=TRIES_MAX {
            // Else an order could be refused for what another process has changed already.
            self.read_again().await.map_err(failed)?;
            let state = self.state.load_full();
            let now = self.env.clock.now().seconds();
            let changes = state.registry.decide(order.clone(), now).map_err(OrderError::Refused)?;
            self.check_unused(&state.registry, &changes).await?;
            let rows: Vec<IdentityChange> = changes.iter().map(row).collect();
            match self.volume.change_identities(state.generation, &rows).await {
                Ok(generation) => {
                    let read = self.refresh().await;
                    let made = |error| not_done("the change was made, and users cannot be read again", error);
                    return read.map(|()| generation).map_err(made);
                }
                Err(Error::PreconditionFailed) => {
                    let longest = u64::from(tries) * PAUSE_BESIDE_OTHERS_MS;
                    tokio::time::sleep(Duration::from_millis(self.env.random.next_u64() % longest)).await;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(OrderError::Failed("others change users all the time; try again".to_owned()))
    }

    /// An account that owns buckets cannot be removed.
    async fn check_unused(&self, registry: &Registry, changes: &[Change]) -> Result<(), OrderError> {
        let failed = |error| not_done("the buckets cannot be listed", error);
        let Some(account) = changes.iter().find_map(|change| match change {
            Change::Remove(Kind::Account, id) => registry.accounts.get(id),
            _ => None,
        }) else {
            return Ok(());
        };
        let mut after: Option<String> = None;
        loop {
            let page = self.volume.list_buckets("", after.as_deref(), 1000).await.map_err(failed)?;
            if let Some(bucket) = page.iter().find(|bucket| bucket.owner == account.id) {
                let message = format!("the account {} owns the bucket {}; remove it first", account.id, bucket.name);
                return Err(OrderError::Refused(ChangeError::InUse(message)));
            }
            match page.last() {
                Some(last) if page.len() == 1000 => after = Some(last.name.clone()),
                _ => return Ok(()),
            }
        }
    }
}

fn not_done(what: &str, error: Error) -> OrderError {
    let text = format!("{what}: {error}");
    if error.is_unanswered() { OrderError::Unanswered(text) } else { OrderError::Failed(text) }
}

fn row(change: &Change) -> IdentityChange {
    match change {
        Change::Put(record) => {
            let (kind, name) = record.id();
            IdentityChange { kind: kind.byte(), name: name.to_owned(), content: Some(record.encode()) }
        }
        Change::Remove(kind, name) => IdentityChange { kind: kind.byte(), name: name.clone(), content: None },
    }
}

impl Asked for Identities {
    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.state.load().registry)
    }

    fn is_old(&self) -> bool {
        let confirmed = Duration::from_millis(self.confirmed_ms.load(Ordering::Relaxed));
        self.volume.engine().is_shared() && self.env.clock.monotonic().saturating_sub(confirmed) > CONFIRMED_FOR
    }

    fn catch_up(&self) -> CaughtUp<'_> {
        Box::pin(async { self.read_again().await.map_err(|error| format!("users cannot be read: {error}")) })
    }

    fn catch_up_for_stranger(&self) -> CaughtUp<'_> {
        let now = self.env.clock.monotonic();
        let mut looks = self.looks.lock();
        if now.saturating_sub(looks.0) >= LOOKS_TIME {
            *looks = (now, 0);
        }
        if looks.1 == LOOKS_MAX {
            return Box::pin(ready(Ok(())));
        }
        looks.1 += 1;
        self.catch_up()
    }

    fn order(&self, order: Order) -> Ordered<'_> {
        Box::pin(self.carry_out(order))
    }

    fn new_id(&self, beginning: &str) -> String {
        root_keys::new_access_key(&self.env, beginning)
    }

    fn new_key(&self) -> Option<NewKey> {
        let (id, secret) = (root_keys::new_access_key(&self.env, "AKIA"), root_keys::new_secret(&self.env));
        let sealed = self.seal.seal_secret(&self.env, &id, &secret);
        Some(NewKey { id, secret, sealed })
    }

    fn begin_session(&self, new: &NewSession) -> Option<SessionKeys> {
        Some(session::begin(&self.seal, &self.env, new))
    }

    fn find(&self, access_key: &str, token: Option<&str>, now: Timestamp) -> Found {
        if let Some((_, secret)) = self.root.as_ref().filter(|(root, _)| root == access_key) {
            let credential = Credential { secret: secret.clone(), session_token: None };
            return Found::Known(credential, Arc::clone(&self.root_identity));
        }
        let state = self.state.load();
        if let Some(token) = token {
            return session::find(&self.seal, &state.registry, access_key, token, now);
        }
        let Some((key, identity)) = state.registry.find(access_key) else { return Found::Nobody };
        let Some(secret) = state.secrets.get(&key.id) else { return Found::Nobody };
        Found::Known(Credential { secret: secret.clone(), session_token: None }, identity)
    }

    fn account(&self, name: AccountName<'_>) -> Option<Arc<Account>> {
        let state = self.state.load();
        let found = match name {
            AccountName::Id("") => Some(&self.root_identity.account),
            AccountName::Id(id) => state.registry.accounts.get(id),
            AccountName::CanonicalId(id) => state.registry.account_of_canonical_id(id),
            AccountName::Email(email) => state.registry.account_of_email(email),
        };
        found.cloned()
    }
}
