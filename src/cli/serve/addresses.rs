//! The addresses and the directory of a server that starts: both, or neither.
//!
//! Why:        a start that is refused leaves no new directory behind, so the addresses come first. But a server that was killed
//!             may still be dying, with its addresses and its lock: whoever opens the directory cuts its mounts, and so
//!             ends it (`connections::cut_of_dying`).
//! Invariants: A1 an address is only said to be taken after the directory was opened, if it is one.
//! Not here:   serving.

use std::time::Duration;

use margay_env::Env;
use tokio::net::TcpListener;

use crate::cli::Failure;
use crate::datadir::DataDir;
use crate::settings::Settings;

/// How long the addresses of a server that died may stay taken after its lock is free: the kernel closes one after the other.
const CLOSING_MAX: Duration = Duration::from_secs(1);
const CLOSING_STEP: Duration = Duration::from_millis(50);

/// The addresses, bound but not yet served.
pub(super) struct Sockets {
    pub(super) main: TcpListener,
    pub(super) admin: Option<TcpListener>,
    /// Where other servers of a shared volume ask.
    pub(super) store: Option<TcpListener>,
}

impl Sockets {
    async fn bind(settings: &Settings) -> Result<Sockets, Failure> {
        let main = margay_listener::bind(&settings.address, "--address").await?;
        let admin = match &settings.admin_address {
            Some(address) => Some(margay_listener::bind(address, "--admin-address").await?),
            None => None,
        };
        let store = match &settings.shared {
            Some(shared) => Some(margay_listener::bind(&shared.store_address, "--store-address").await?),
            None => None,
        };
        Ok(Sockets { main, admin, store })
    }
}

/// The addresses, then the directory. Of a directory that is there already, that another server has it is told first.
pub(super) async fn reserve(env: &Env, settings: &Settings) -> Result<(DataDir, Sockets), Failure> {
    let open = || match &settings.shared {
        None => DataDir::open_or_create_with(env, &settings.data, &settings.disks),
        Some(_) => DataDir::open_or_create_shared(env, &settings.data),
    };
    let mut failure = match Sockets::bind(settings).await {
        Ok(sockets) => return Ok((open()?, sockets)),
        Err(failure) => failure,
    };
    if !DataDir::is_marked(env, &settings.data) {
        return Err(failure);
    }
    let dir = open()?;
    for _ in 0..CLOSING_MAX.as_millis() / CLOSING_STEP.as_millis() {
        match Sockets::bind(settings).await {
            Ok(sockets) => return Ok((dir, sockets)),
            Err(again) => failure = again,
        }
        tokio::time::sleep(CLOSING_STEP).await;
    }
    Err(failure)
}
