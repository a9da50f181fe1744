//! `margay serve --endpoint-only`: a server of a shared volume that keeps copies and opens no door for clients.
//!
//! Invariants: P1 the address is bound before the storage is opened, and answers only after.
//!             P2 on the first SIGTERM or SIGINT no new question is answered, then the session ends. A second signal ends the process
//!                at once, which loses nothing durable.
//! Not here:   what it answers (`endpoint`, margay-cluster), a server with clients (serve).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use margay_accounts::identities::Identities;
use margay_accounts::root_keys::{self, RootKeys};
use margay_env::Env;
use margay_jobs::reclaimer::Reclaimer;
use margay_jobs::session_keeper::SessionKeeper;
use margay_listener::{ConnectionLimits, Listener, Traffic};
use margay_volume::Volume;

use super::{ADMIN_CONNECTIONS_MAX, SIDE_DRAIN_TIME_MAX, Signals, close, stand_in, store_port, told_address};
use crate::administration::{Administered, Remote};
use crate::audit::Audit;
use crate::checks::Checks;
use crate::control;
use crate::datadir::DataDir;
use crate::endpoint::{Endpoint, EndpointControl, EndpointPage};
use crate::exit::Failure;
use crate::ready;
use crate::settings::{Settings, SharedSettings};
use crate::spans::Spans;
use crate::wiring::Storage;

pub(super) async fn serve(
    env: Env,
    settings: &Settings,
    shared: &SharedSettings,
    limits: ConnectionLimits,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let socket = margay_listener::bind(&shared.store_address, "--store-address").await?;
    let admin = match &settings.admin_address {
        Some(address) => Some(margay_listener::bind(address, "--admin-address").await?),
        None => None,
    };
    // After the addresses: a start that is refused makes no directory.
    let dir = DataDir::open_or_create_shared(&env, &settings.data)?;
    let address = told_address(&shared.store_address, &socket)?;
    let (storage, key) =
        Storage::open_endpoint(dir, &settings.storage, (&shared.postgres, shared.tls), address.clone())?;
    let storage = Arc::new(storage);
    stand_in(&storage, shared)?;
    let no_thread =
        |error: std::io::Error| Failure::failed(format!("cannot start a thread: {error}; look at ulimit -u"));
    let (env, volume) = (storage.env.clone(), &storage.volume);
    let (keys, spans) = (root_keys(&env, &settings.data, volume)?, Spans::start(&env, settings.otlp.as_ref())?);
    let identities = Arc::new(Identities::open_to_follow(&env, &settings.data, volume, keys.as_ref()).await?);
    tokio::spawn(Arc::clone(&identities).follow());
    let endpoint = Arc::new(Endpoint {
        reclaimer: Reclaimer::start(&env, Arc::clone(volume), settings.storage.reclaim()).map_err(no_thread)?,
        session: SessionKeeper::start(&env, volume).map_err(no_thread)?,
        scrub_rate_max: settings.storage.scrub_rate_max,
        audit: Audit::new(&env, settings.audit_log.clone()),
        spans,
        trace: Arc::default(),
        checks: Arc::new(Checks::open(&env, &settings.data)),
        traffic: Arc::new(Traffic::default()),
        begun: env.clock.monotonic(),
        admin: admin.as_ref().and_then(|admin| admin.local_addr().ok()),
        data: settings.data.clone(),
        storage: Arc::clone(&storage),
        address,
        env,
    });
    let side_limits = ConnectionLimits { connections_max: ADMIN_CONNECTIONS_MAX, ..limits };
    let unseen = || Arc::new(Traffic::default());
    let process = Arc::clone(&endpoint) as Arc<dyn Administered>;
    let remote = Arc::new(Remote::of(process, &identities, &settings.region, false));
    let page = Arc::new(EndpointPage { endpoint: Arc::clone(&endpoint), remote });
    let mut sides: Vec<Listener> = Vec::new();
    sides.extend(admin.map(|admin| Listener::start_tcp(admin, None, page, unseen(), side_limits)));
    match control::bind(&endpoint.env, &endpoint.data) {
        Ok(commands) => {
            let handler = Arc::new(EndpointControl(Arc::clone(&endpoint)));
            sides.push(Listener::start_unix(commands, handler, unseen(), side_limits));
        }
        Err(error) => tracing::warn!(%error, "no control socket: `margay status` will not find this server"),
    }
    let (port, tls) = store_port(&storage, key, shared)?;
    // Last, so that a server that is answered finds the others too.
    let port = Listener::start_tcp(socket, Some(tls), Arc::new(port), Arc::clone(&endpoint.traffic), limits);
    print!("{}", screen(&endpoint));
    tracing::info!(address = endpoint.address, data = %endpoint.data.display(), version = env!("CARGO_PKG_VERSION"), "keeping copies");
    ready::tell();

    signals.first(None).await;
    tracing::info!("stopping");
    tokio::spawn(signals.second());
    endpoint.stop_background();
    stop(&endpoint, port, sides, limits.drain_time_max).await
}

/// The root keys, where they are given: an endpoint needs none, and users of the volume administer it with theirs.
fn root_keys(env: &Env, data: &Path, volume: &Volume) -> Result<Option<RootKeys>, Failure> {
    let given = root_keys::given(|name| std::env::var(name).ok())?.or_else(|| root_keys::read(env, data));
    let checked = given.map(|keys| root_keys::load(env, data, Some(keys), volume));
    Ok(checked.transpose()?)
}

/// P2.
async fn stop(
    endpoint: &Arc<Endpoint>,
    port: Listener,
    sides: Vec<Listener>,
    drain_time_max: Duration,
) -> Result<(), Failure> {
    if !port.stop(drain_time_max.min(SIDE_DRAIN_TIME_MAX)).await {
        tracing::warn!("questions of other servers are cut off: they ask again elsewhere");
    }
    for side in sides {
        side.stop(SIDE_DRAIN_TIME_MAX).await;
    }
    // A leftover socket does no harm: the next server replaces it.
    let _ = endpoint.env.disk.remove(&endpoint.data.join(control::NAME));
    endpoint.spans.close().await;
    let closing = Arc::clone(endpoint);
    close(move || {
        closing.session.end();
        closing.storage.close()
    })
    .await
}

fn screen(endpoint: &Endpoint) -> String {
    let admin = match endpoint.admin {
        Some(admin) => format!("  admin     http://{admin}/health  http://{admin}/metrics\n"),
        None => String::new(),
    };
    let store = endpoint.storage.segments.name().number.0;
    let data: &Path = &endpoint.data;
    format!(
        "margay {}\n  data      {}\n  store     {store} at {}, an endpoint: no S3 door, no mount\n{admin}\nCtrl-C stops it.\n",
        env!("CARGO_PKG_VERSION"),
        data.display(),
        endpoint.address
    )
}
