//! `margay serve`: opens the storage, opens the doors, and closes both in order.
//!
//! Invariants: V1 files and addresses that the settings name are read and bound before a directory is made, and served only
//!                after the storage is open: a start that is refused leaves nothing.
//!             V2 on the first SIGTERM or SIGINT no new request begins, running ones get the drain time, then the
//!                storage is checkpointed. On the second signal the process ends at once, which loses nothing durable.

mod addresses;
mod endpoint;
mod named_files;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use margay_accounts::identities::Identities;
use margay_accounts::root_keys::{self, RootKeys};
use margay_cluster::{ClusterKey, StorePort, store_port_tls};
use margay_env::Env;
use margay_jobs::access_log::AccessLog;
use margay_jobs::lifecycle::Expiry;
use margay_jobs::notify::{self, Notifier, Target};
use margay_jobs::reclaimer::Reclaimer;
use margay_jobs::session_keeper::SessionKeeper;
use margay_listener::Traffic;
use margay_listener::tls::{self, Tls};
use margay_listener::{ConnectionLimits, Handler, Listener};
use margay_metrics::Requests;
use margay_s3::sts::Provider;
use margay_volume::{CopiesRecord, Role, Volume, change_copies, read_copies};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::addresses::Sockets;
use super::arguments::{ServerArgs, environment};
use super::mount::{FarArgs, run_serve};
use crate::audit::Audit;
use crate::buckets;
use crate::checks::Checks;
use crate::console;
use crate::control::{self, Control};
use crate::datadir::DataDir;
use crate::exit::Failure;
use crate::front::{self, Front, Recorder};
use crate::logging;
use crate::mounts::Mounts;
use crate::open_files;
use crate::probe;
use crate::ready;
use crate::screen::{self, Screen};
use crate::server::Server;
use crate::settings::resolve::stray_variables;
use crate::settings::{Settings, SharedSettings};
use crate::spans::Spans;
use crate::watching::Watched;
use crate::wiring::Storage;
pub(super) use named_files::check_logs;
use named_files::{providers, targets};

const EXAMPLES: &str = "Examples:
  margay serve
  margay serve --data /srv/margay --address 0.0.0.0:9000 --log-format json
  margay serve --tls-certificate chain.pem --tls-key key.pem --domain s3.example.org
  margay serve --bucket photos --bucket logs
  margay serve --mount photos=/mnt/photos
  margay serve --upstream s3://photos/2026 --endpoint https://s3.example --cache /var/cache/photos --mount /mnt/photos
  margay serve --data /ssd --mirror-metadata /ssd2 --disk /d1 --disk /d2 --copies 2
  margay serve --metadata postgres://margay@db/margay --store-address 10.0.0.1:9002
  margay serve --metadata postgres://margay@db/margay --store-address 10.0.0.3:9002 --endpoint-only
  MARGAY_ACCESS_KEY=admin MARGAY_SECRET_KEY=a-long-secret margay serve

With --endpoint-only it keeps copies for the other servers of its volume and opens no door for clients; of the keys it needs DIR/identity-key.
The root keys come from MARGAY_ACCESS_KEY and MARGAY_SECRET_KEY, or are made once into DIR/keys.
With --upstream the address serves one bucket of another store: what is put is answered when the cache has it, and sent in the
background; at the end the rest is sent. Keys of the other store come from the places of AWS's tools, as for `margay mount`.
SIGTERM and Ctrl-C stop it after the running requests; a second one stops at once. SIGHUP reads the certificate again.";

/// Connections at once on the admin port and on the control socket, each.
const ADMIN_CONNECTIONS_MAX: usize = 64;
/// Drain time of requests on those two when the server stops.
const SIDE_DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    far: FarArgs,
    /// GetObject returns an object of this size for every key, without asking the storage: shows what the S3 front
    /// alone can do (tests/goals)
    #[arg(long, value_name = "BYTES", hide = true)]
    fixed_object: Option<u16>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(upstream) = &args.far.upstream {
        if args.server.names_disks() {
            return Err(Failure::usage(
                "--disk, --copies and --mirror-metadata are for a volume of its own, and not for the cache of a far bucket",
            ));
        }
        if args.server.names_buckets() {
            return Err(Failure::usage(
                "--bucket is for a volume of its own: with --upstream there is the one far bucket",
            ));
        }
        return run_serve(upstream, &args.far, &args.server);
    }
    let env = Env::real();
    let mut settings = Settings::build(&args.server.resolve(&env)?).map_err(Failure::usage)?;
    settings.disks.accept_missing = args.server.accept_missing_disks;
    logging::start(&settings.log_level, &settings.log_format)?;
    for name in stray_variables(&environment()) {
        tracing::warn!(%name, "this variable names no setting; `margay config --json` shows the names");
    }
    super::keep_private();
    check_logs(&env, &settings)?;
    let connections_max = open_files::allow(settings.connection.connections_max);
    let limits = ConnectionLimits { connections_max, ..settings.connection };
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    match &settings.shared {
        Some(shared) if shared.role == Some(Role::Endpoint) => {
            runtime.block_on(endpoint::serve(env, &settings, shared, limits))
        }
        _ => runtime.block_on(serve(env, settings, limits, args.fixed_object)),
    }
}

async fn serve(
    env: Env,
    settings: Settings,
    limits: ConnectionLimits,
    fixed_object: Option<u16>,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let given = root_keys::given(|name| std::env::var(name).ok())?;
    let tls = match settings.tls.clone() {
        Some((certificate, key)) => Some(Tls::load(&env, certificate, key)?),
        None => None,
    };
    let (providers, targets) = (providers(&env, &settings)?, targets(&env, &settings)?);
    let spans = Spans::start(&env, settings.otlp.as_ref())?;
    let (dir, sockets) = addresses::reserve(&env, &settings).await?;
    let sync = probe::sync_time(&env, &settings.data)
        .map_err(|error| tracing::warn!(%error, "cannot measure a sync in the data directory"))
        .ok();
    let (storage, store_port) = open_storage(dir, &settings, sockets.store.as_ref())?;
    let keys = root_keys::load(&storage.env, &settings.data, given, &storage.volume)?;
    let identities = Identities::open_to_follow(&storage.env, &settings.data, &storage.volume, Some(&keys)).await?;
    // Small files of the jobs have copies, too.
    let env = storage.env.clone();
    let server = assemble(env, &settings, (storage, Arc::new(identities)), (targets, tls.clone(), spans))?;
    let logging = server.access_log.run();
    make_buckets(&server.storage.volume, &settings.buckets).await?;
    let front = front(&server, &settings, &keys, providers, fixed_object);
    let handlers = console::place(&server, &settings, front, sockets.main.local_addr().ok());
    let doors = Doors::open(&server, (handlers, store_port), sockets, tls.clone(), limits);
    let (address, admin) = doors.addresses()?;
    *server.addresses.lock() = (Some(address), admin);
    let mounted = mount(&server, &settings).await;
    let screen = Screen {
        data: &settings.data,
        far: None,
        mounts: &mounted,
        sync,
        address,
        admin,
        console: console::url(&settings, address, admin),
        tls: tls.is_some(),
        region: &settings.region,
        keys: &keys,
        terminal: std::io::stdout().is_terminal(),
        curl: screen::curl_signs(),
    };
    print!("{}", screen.text());
    tracing::info!(%address, data = %settings.data.display(), version = env!("CARGO_PKG_VERSION"), "serving");
    ready::tell();

    signals.first(tls.as_ref()).await;
    tracing::info!(seconds = limits.drain_time_max.as_secs(), "stopping: running requests are finished first");
    tokio::spawn(signals.second());
    server.stop_background();
    doors.close(&server, limits.drain_time_max).await;
    logging.abort();
    server.access_log.close().await;
    server.spans.close().await;
    let mounts = Arc::clone(&server);
    let longest = limits.drain_time_max;
    // Cancelled only when the process ends anyway.
    let _ = tokio::task::spawn_blocking(move || mounts.mounts.unmount_all(longest)).await;
    let closing = Arc::clone(&server);
    close(move || {
        closing.session.end();
        closing.storage.close()
    })
    .await
}

/// Makes the buckets of the settings that are not there.
async fn make_buckets(volume: &Volume, names: &[String]) -> Result<(), Failure> {
    for name in names {
        if buckets::make(volume, name).await? {
            tracing::info!(bucket = name, "made, because the settings name it");
        }
    }
    Ok(())
}

/// The last that a server does, on a thread that may wait.
async fn close(storage: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
    let closed = tokio::task::spawn_blocking(storage).await;
    closed.map_err(|error| Failure::failed(format!("closing the storage broke off: {error}")))??;
    tracing::info!("stopped");
    Ok(())
}

/// The storage, and what answers other servers if they share its volume.
type OpenStorage = (Arc<Storage>, Option<(StorePort, Tls)>);

/// Opens the storage; `store` is bound if other servers share its volume.
fn open_storage(dir: DataDir, settings: &Settings, store: Option<&TcpListener>) -> Result<OpenStorage, Failure> {
    let (Some(shared), Some(socket)) = (&settings.shared, store) else {
        let storage = Storage::open(dir, &settings.storage)?;
        storage.start_disks()?;
        return Ok((Arc::new(storage), None));
    };
    let address = told_address(&shared.store_address, socket)?;
    let (storage, key) = Storage::open_shared(dir, &settings.storage, (&shared.postgres, shared.tls), address)?;
    stand_in(&storage, shared)?;
    let port = store_port(&storage, key, shared)?;
    Ok((Arc::new(storage), Some(port)))
}

/// Where the other servers of the volume ask.
fn store_port(storage: &Storage, key: ClusterKey, shared: &SharedSettings) -> Result<(StorePort, Tls), Failure> {
    let tls = store_port_tls(&key, shared.tls).map_err(|error| Failure::failed(format!("store_tls: {error}")))?;
    let port = StorePort::new(Arc::clone(&storage.segments), key);
    Ok(match storage.copies() {
        Some(copies) => (port.mending(Arc::clone(copies)), tls),
        None => (port, tls),
    })
}

/// Says in the rows in which rack the own store stands, and what for. A rack that was named before stays if none is given.
fn stand_in(storage: &Storage, shared: &SharedSettings) -> Result<(), Failure> {
    let (engine, number) = (storage.volume.engine(), storage.segments.name().number);
    let is_so = |record: &CopiesRecord| {
        let is_there = shared.rack.is_empty() || record.rack(number) == shared.rack;
        is_there && record.role_of.get(&number).copied() == shared.role
    };
    let stand = |record: &mut CopiesRecord| {
        if !shared.rack.is_empty() {
            record.rack_of.insert(number, shared.rack.clone());
        }
        match shared.role {
            Some(role) => drop(record.role_of.insert(number, role)),
            None => drop(record.role_of.remove(&number)),
        }
    };
    let said = read_copies(&**engine).and_then(|record| match is_so(&record) {
        true => Ok(record),
        false => change_copies(&**engine, &stand),
    });
    said.map(drop)
        .map_err(|error| Failure::failed(format!("the rows do not take rack and role of this server: {error}")))
}

/// The address that other servers are told: the host as it was given, with the port that was bound.
fn told_address(given: &str, socket: &TcpListener) -> Result<String, Failure> {
    let bound = socket.local_addr().map_err(|error| Failure::failed(format!("--store-address: {error}")))?;
    if bound.ip().is_unspecified() {
        return Err(Failure::usage(format!(
            "--store-address {given}: other servers need the address of this machine; name it instead of {}",
            bound.ip()
        )));
    }
    let host = given.rsplit_once(':').map_or(given, |(host, _)| host);
    Ok(format!("{host}:{}", bound.port()))
}

/// Builds the server with its background jobs.
fn assemble(
    env: Env,
    settings: &Settings,
    (storage, identities): (Arc<Storage>, Arc<Identities>),
    (targets, tls, spans): (Vec<Target>, Option<Tls>, Arc<Spans>),
) -> Result<Arc<Server>, Failure> {
    let volume = Arc::clone(&storage.volume);
    let no_thread =
        |error: std::io::Error| Failure::failed(format!("cannot start a thread: {error}; look at ulimit -u"));
    let reclaimer = Reclaimer::start(&env, Arc::clone(&volume), settings.storage.reclaim()).map_err(no_thread)?;
    let session = SessionKeeper::start(&env, &volume).map_err(no_thread)?;
    if volume.engine().is_shared() {
        tokio::spawn(Arc::clone(&identities).follow());
    }
    Ok(Arc::new(Server {
        reclaimer,
        session,
        expiry: Expiry::start(&env, &volume, &settings.data, settings.expiry),
        notifier: notifier(&volume, settings, targets),
        access_log: AccessLog::new(&env, &volume, front::access_log_options(settings)),
        mounts: Mounts::new(&env, &settings.data, &volume, settings.storage.known_files_max),
        identities,
        scrub_rate_max: settings.storage.scrub_rate_max,
        audit: Audit::new(&env, settings.audit_log.clone()),
        trace: Arc::default(),
        watched: Watched::default(),
        checks: Arc::new(Checks::open(&env, &settings.data)),
        spans,
        region: settings.region.clone(),
        tls,
        begun: env.clock.monotonic(),
        env,
        data: settings.data.clone(),
        storage,
        requests: Arc::new(Requests::default()),
        traffic: Arc::new(Traffic::default()),
        addresses: Mutex::new((None, None)),
    }))
}

/// Mounts what the settings name; S3 is served even if a mount fails. Returns one line per mount.
async fn mount(server: &Arc<Server>, settings: &Settings) -> Vec<String> {
    let mut lines = Vec::new();
    for wish in &settings.mounts {
        let (bucket, path) = (&wish.bucket, wish.path.display());
        match server.mount(wish.clone(), true).await {
            Ok(()) => lines.push(format!("{bucket}/{} on {path}", wish.prefix)),
            Err(error) => {
                tracing::error!(%bucket, %path, %error, "not mounted; S3 is served all the same");
                lines.push(format!("{bucket}/{} not mounted: {error}", wish.prefix));
            }
        }
    }
    lines
}

/// Starts sending events to the configured targets.
fn notifier(volume: &Arc<Volume>, settings: &Settings, targets: Vec<Target>) -> Notifier {
    let sender = notify::Sender { region: settings.region.clone(), owner: front::owner() };
    Notifier::start(volume, targets, &sender)
}

/// The handler of the S3 port.
fn front(
    server: &Arc<Server>,
    settings: &Settings,
    keys: &RootKeys,
    providers: Vec<Provider>,
    fixed_object: Option<u16>,
) -> Arc<dyn Handler> {
    let volume = &server.storage.volume;
    let mut door = front::door(&server.env, settings, volume, (keys, &server.identities), Recorder::of(server), None);
    door = door.with_providers(providers);
    if let Some(bytes) = fixed_object {
        tracing::warn!("every GetObject is answered without the storage: this is no server for data");
        door = door.with_fixed_object(vec![b'x'; usize::from(bytes)].into());
    }
    Arc::new(Front::of(server, settings, door))
}

/// All listeners of a server.
struct Doors {
    main: Listener,
    admin: Option<Listener>,
    commands: Option<Listener>,
    store: Option<Listener>,
}

/// Of the S3 address and of the admin address.
type Handlers = (Arc<dyn Handler>, Arc<dyn Handler>);

impl Doors {
    fn open(
        server: &Arc<Server>,
        ((front, page), store_port): (Handlers, Option<(StorePort, Tls)>),
        sockets: Sockets,
        tls: Option<Tls>,
        limits: ConnectionLimits,
    ) -> Doors {
        let side_limits = ConnectionLimits { connections_max: ADMIN_CONNECTIONS_MAX, ..limits };
        let unseen = || Arc::new(Traffic::default());
        let admin = sockets.admin.map(|socket| Listener::start_tcp(socket, None, page, unseen(), side_limits));
        let commands = match control::bind(&server.env, &server.data) {
            Ok(socket) => {
                Some(Listener::start_unix(socket, Arc::new(Control(Arc::clone(server))), unseen(), side_limits))
            }
            Err(error) => {
                tracing::warn!(%error, "no control socket: `margay status` will not find this server");
                None
            }
        };
        let store = sockets
            .store
            .zip(store_port)
            .map(|(socket, (port, tls))| Listener::start_tcp(socket, Some(tls), Arc::new(port), unseen(), limits));
        // Last, so that a client that sees it answer finds the others too.
        let main = Listener::start_tcp(sockets.main, tls, front, Arc::clone(&server.traffic), limits);
        Doors { main, admin, commands, store }
    }

    /// Addresses of the S3 door and the admin port.
    fn addresses(&self) -> Result<(SocketAddr, Option<SocketAddr>), Failure> {
        let main = self.main.address.ok_or_else(|| Failure::failed("the listening socket has no address"))?;
        Ok((main, self.admin.as_ref().and_then(|admin| admin.address)))
    }

    async fn close(self, server: &Server, drain_time_max: Duration) {
        if !self.main.stop(drain_time_max).await {
            tracing::warn!(running = server.traffic.running(), "the drain time is over, running requests are cut off");
        }
        for side in [self.admin, self.commands, self.store].into_iter().flatten() {
            side.stop(SIDE_DRAIN_TIME_MAX).await;
        }
        // A leftover socket does no harm: the next server replaces it.
        let _ = server.env.disk.remove(&server.data.join(control::NAME));
    }
}

/// The signals that a server handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        let one = |kind| signal(kind).map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")));
        Ok(Signals {
            terminate: one(SignalKind::terminate())?,
            interrupt: one(SignalKind::interrupt())?,
            hangup: one(SignalKind::hangup())?,
        })
    }

    /// Waits for the signal to stop; reloads the certificate meanwhile.
    async fn first(&mut self, tls: Option<&Tls>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => tracing::info!("SIGHUP: looking at the TLS files"),
                () = tokio::time::sleep(tls::LOOK_EVERY), if tls.is_some() => {}
            }
            if let Some(tls) = tls {
                tls::refresh_apart(tls).await;
            }
        }
    }

    async fn second(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        tracing::warn!("second signal: stopping at once");
        std::process::exit(crate::exit::Code::Failed as i32);
    }
}
