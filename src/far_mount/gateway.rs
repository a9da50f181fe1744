//! The S3 door of a far mount: the same volume, at an address with access keys of its own.
//!
//! Why:        programs that speak S3 get a durable cache of a far bucket without a mount. What they change is a change of the
//!             volume, as one of a mount is, and goes to the far bucket in the same order.
//! Invariants: W1 the address is bound before the cache is opened, and served only after.
//!             W2 no request begins when the process ends; running ones get the drain time, then what is left is sent.
//! Not here:   what is refused (margay-s3, only_bucket), listings (margay-upstream), the mount beside it (far_mount).

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use margay_accounts::identities::Identities;
use margay_accounts::root_keys::{self, RootKeys};
use margay_env::{Env, files};
use margay_jobs::access_log::AccessLog;
use margay_listener::Listener;
use margay_listener::tls::{self, Tls};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use super::administered::Seen;
use super::running::Running;
use crate::administration::{Administered, Remote};
use crate::datadir::CACHE_SERVED_FILE;
use crate::exit::Failure;
use crate::front::{self, Front, Recorder};
use crate::probe;
use crate::screen::{self, FarBucket, Screen};
use crate::settings::Settings;

/// What the door is to be.
#[derive(Clone, Debug)]
pub struct Gateway {
    pub settings: Settings,
    /// The bucket's name at this address.
    pub bucket: String,
}

/// What pages and commands tell of the door.
#[derive(Debug)]
pub struct Served {
    /// As a client on this machine names it.
    pub endpoint: String,
    pub bucket: String,
}

/// An address that is bound, and its certificate.
pub(super) struct Bound {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    pub(super) served: Arc<Served>,
    pub(super) seen: Seen,
}

/// The open door.
pub(super) struct Door {
    listener: Listener,
    access_log: Arc<AccessLog>,
    tasks: Vec<JoinHandle<()>>,
}

impl Gateway {
    pub(super) async fn bind(&self, env: &Env) -> Result<Bound, Failure> {
        let tls = match self.settings.tls.clone() {
            Some((certificate, key)) => Some(Tls::load(env, certificate, key)?),
            None => None,
        };
        let socket = margay_listener::bind(&self.settings.address, "--address").await?;
        let address = socket.local_addr();
        let address = address.map_err(|error| Failure::failed(format!("the socket has no address: {error}")))?;
        let (endpoint, bucket) = (screen::endpoint(address, tls.is_some()), self.bucket.clone());
        let served = Arc::new(Served { endpoint, bucket });
        Ok(Bound { socket, address, tls, served, seen: Seen::of(env, &self.settings)? })
    }

    /// Opens the door and says so; `mounted`: the mount beside it.
    pub(super) async fn open(&self, bound: Bound, running: &Arc<Running>) -> Result<Door, Failure> {
        let Bound { socket, address, tls, served, seen } = bound;
        let (env, volume, settings) = (&running.env, &running.storage.volume, &self.settings);
        let given = root_keys::given(|name| std::env::var(name).ok())?;
        let keys = root_keys::load(env, &running.cache, given, volume)?;
        let identities = Arc::new(Identities::open(env, &running.cache, volume, Some(&keys)).await?);
        let access_log = AccessLog::new(env, volume, front::access_log_options(settings));
        let recorder = Recorder {
            requests: Arc::clone(&seen.requests),
            access_log: Arc::clone(&access_log),
            trace: Arc::clone(&seen.trace),
            spans: Arc::clone(&seen.spans),
            clock: Arc::clone(&env.clock),
        };
        let only = Some(self.bucket.clone());
        let door = front::door(env, settings, volume, (&keys, &identities), recorder, only);
        let administered = Arc::clone(running) as Arc<dyn Administered>;
        let admin = Arc::new(Remote::of(administered, &identities, &settings.region, tls.is_some()));
        let process = Arc::clone(running) as Arc<dyn crate::admin::Healthy>;
        let front = Arc::new(Front { process, door: Arc::new(door), admin });
        let mut tasks = vec![access_log.run()];
        tasks.extend(tls.clone().map(|tls| tokio::spawn(follow_certificate(tls))));
        let served_file = running.cache.join(CACHE_SERVED_FILE);
        files::write_new(env, &served_file, served.endpoint.as_bytes())
            .map_err(|error| Failure::failed(format!("{}: {error}", served_file.display())))?;
        let listener = Listener::start_tcp(socket, tls.clone(), front, seen.traffic, settings.connection);
        self.tell(running, &keys, (address, tls.is_some()));
        Ok(Door { listener, access_log, tasks })
    }

    fn tell(&self, running: &Running, keys: &RootKeys, (address, tls): (SocketAddr, bool)) {
        let mounts: Vec<String> = running.path.iter().map(|path| path.display().to_string()).collect();
        let far = FarBucket { source: &running.source, endpoint: &running.endpoint, bucket: &self.bucket };
        let screen = Screen {
            data: &running.cache,
            far: Some(far),
            mounts: &mounts,
            sync: probe::sync_time(&running.env, &running.cache).ok(),
            address,
            admin: running.page,
            console: None,
            tls,
            region: &self.settings.region,
            keys,
            terminal: std::io::stdout().is_terminal(),
            curl: screen::curl_signs(),
        };
        print!("{}", screen.text());
        tracing::info!(%address, source = running.source, bucket = self.bucket, "serving");
    }
}

/// Reads a replaced certificate again, also at SIGHUP.
async fn follow_certificate(tls: Tls) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    loop {
        tokio::select! {
            _ = hangup.recv() => tracing::info!("SIGHUP: looking at the TLS files"),
            () = tokio::time::sleep(tls::LOOK_EVERY) => {}
        }
        tls::refresh_apart(&tls).await;
    }
}

impl Door {
    /// No request begins any more, and those that run get the drain time.
    pub(super) async fn close(self, gateway: &Gateway, env: &Env, cache: &Path) {
        if !self.listener.stop(gateway.settings.connection.drain_time_max).await {
            tracing::warn!("the drain time is over, running requests are cut off");
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        self.access_log.close().await;
        // One that is left is removed by the next process with this cache.
        let _ = env.disk.remove(&cache.join(CACHE_SERVED_FILE));
    }
}
