//! `margay secrets`: compares the key files of a data directory with those that its volume was used with.
//!
//! Why:        a start with other keys, or without them, is refused; this command names the file, and lets the operator
//!             accept the change.
//! Not here:   the comparison (margay-accounts).

use clap::ValueEnum;
use margay_accounts::key_files::{self, KEY_FILES, KeyState};
use margay_accounts::root_keys;
use margay_env::Env;
use margay_volume::KeyFile;
use serde_json::{Value, json};

use super::arguments::DataArgs;
use crate::exit::{Code, Failure};
use crate::wiring::Storage;

const EXAMPLES: &str = "Examples:
  margay secrets
  margay secrets --data /srv/margay --json
  margay secrets forget root --data /srv/margay
  margay secrets forget encryption identity

A volume knows the fingerprints of the keys that its servers had: keys (or MARGAY_ACCESS_KEY and MARGAY_SECRET_KEY), encryption-keys and
identity-key. A server with others is refused, and a lost file is not made anew. After forget the next start takes the keys that it
finds, or makes new ones: what the former ones encrypted cannot be read with those. No server may run on the directory.
Exit code 4 when a start would be refused.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(subcommand)]
    order: Option<Order>,
    #[command(flatten)]
    data: DataArgs,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Order {
    /// Let the next start have other keys
    Forget(Forget),
}

#[derive(Debug, clap::Args)]
struct Forget {
    /// Which keys
    #[arg(required = true)]
    keys: Vec<Kind>,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Root,
    Encryption,
    Identity,
}

impl Kind {
    fn file(self) -> KeyFile {
        match self {
            Kind::Root => KeyFile::Root,
            Kind::Encryption => KeyFile::Encryption,
            Kind::Identity => KeyFile::Identity,
        }
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let env = Env::real();
    let data = match &args.order {
        Some(Order::Forget(forget)) => &forget.data,
        None => &args.data,
    };
    let settings = data.settings(&env)?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    let _inside = runtime.enter();
    let storage = super::works::open_at_rest(&env, &settings)?;
    if let Some(Order::Forget(forget)) = &args.order {
        for kind in &forget.keys {
            let forgot = storage.volume.forget_key_fingerprints(kind.file());
            forgot.map_err(|error| Failure::failed(format!("nothing more was forgotten: {error}")))?;
        }
    }
    let states = states(&storage)?;
    storage.close()?;
    if args.json {
        let all: Vec<Value> = states
            .iter()
            .map(|(of, state)| json!({ "file": key_files::name(*of), "state": word(*state), "starts": starts(*state) }))
            .collect();
        println!("{:#}", json!({ "secrets": all }));
    } else {
        for (of, state) in &states {
            println!("{:16} {}", key_files::name(*of), said(*state));
        }
    }
    if states.iter().all(|(_, state)| starts(*state)) {
        return Ok(());
    }
    let message =
        "a server would not start with these: put the former files back, or see `margay secrets forget --help`";
    Err(Failure { code: Code::Found, message: message.to_owned() })
}

fn states(storage: &Storage) -> Result<Vec<(KeyFile, KeyState)>, Failure> {
    let given = root_keys::given(|name| std::env::var(name).ok())?;
    let look = |of| {
        let known = storage.volume.key_fingerprints(of);
        let known = known.map_err(|error| Failure::failed(format!("the fingerprints cannot be read: {error}")))?;
        Ok((of, key_files::look(&storage.env, storage.path(), given.as_ref(), of, &known)?))
    };
    KEY_FILES.into_iter().map(look).collect()
}

fn starts(state: KeyState) -> bool {
    !matches!(state, KeyState::Others | KeyState::Missing)
}

fn word(state: KeyState) -> &'static str {
    match state {
        KeyState::New => "new",
        KeyState::ToBeMade => "to be made",
        KeyState::Same => "same",
        KeyState::Added => "added",
        KeyState::Others => "others",
        KeyState::Missing => "missing",
    }
}

fn said(state: KeyState) -> &'static str {
    match state {
        KeyState::New => "the next start takes these",
        KeyState::ToBeMade => "the next start makes new ones",
        KeyState::Same => "those that the volume was used with",
        KeyState::Added => "those that the volume was used with, and new ones",
        KeyState::Others => "OTHERS than the volume was used with",
        KeyState::Missing => "MISSING: the volume was used with some",
    }
}
