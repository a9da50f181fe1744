//! The typed settings of one process.
//!
//! Why:        components take plain values; only this module knows names, files and flags.
//! Invariants: S1 built once from the whole table, never changed while the process runs.
//! Not here:   the table of settings (`table`), precedence (`resolve`).

pub mod file;
mod otlp;
pub mod parse;
pub mod resolve;
pub mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use margay_accounts::provider_keys::KeyLocation;
use margay_client::endpoint::Endpoint;
use margay_cluster::StoreTls;
use margay_disks::DiskWish;
use margay_jobs::lifecycle::ExpiryLimits;
use margay_jobs::notify::Target;
use margay_jobs::reclaimer::ReclaimLimits;
use margay_listener::ConnectionLimits;
use margay_postgres::PostgresOptions;
use margay_volume::Role;

use crate::mounts::MountWish;
use crate::mounts::options::MountChoice;
pub use otlp::OtlpSettings;
use parse::Value;
use resolve::Resolved;

/// Which signatures are accepted.
#[derive(Clone, Copy, Debug)]
pub struct AuthSettings {
    pub signature_v2: bool,
    /// Whether payload hashes and the signatures of chunks are verified.
    pub chunk_verification: bool,
}

/// Limits of the storage; sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct StorageLimits {
    pub io_threads_max: usize,
    pub paths_max: usize,
    /// Inodes that the kernel may know of one mount.
    pub known_files_max: usize,
    pub file_memory_bytes_max: u64,
    pub files_memory_bytes_max: u64,
    /// Bytes per second.
    pub reclaim_rate_max: u64,
    pub quarantine_time: Duration,
    pub check_interval: Duration,
    /// Bytes per second.
    pub scrub_rate_max: u64,
    pub log_bytes_max: u64,
    pub overlay_bytes_max: u64,
    pub cache_bytes: u64,
    pub pack_bytes_max: u64,
    pub raw_bytes_min: u64,
    pub reserve_bytes: u64,
    pub events_max: u64,
    /// Artificial delay of every metadata call.
    pub metadata_round_trip: Duration,
}

impl StorageLimits {
    /// The settings of the background reclaimer.
    pub fn reclaim(&self) -> ReclaimLimits {
        ReclaimLimits {
            rate_max: self.reclaim_rate_max,
            quarantine: self.quarantine_time,
            check_every: self.check_interval,
        }
    }
}

impl StorageLimits {
    fn build(number: impl Fn(&str) -> u64, count: impl Fn(&str) -> usize) -> StorageLimits {
        StorageLimits {
            io_threads_max: count("limits.io_threads_max"),
            paths_max: count("limits.paths_max"),
            known_files_max: count("limits.known_files_max"),
            file_memory_bytes_max: number("limits.file_memory_bytes_max"),
            files_memory_bytes_max: number("limits.files_memory_bytes_max"),
            reclaim_rate_max: number("limits.reclaim_rate_max"),
            quarantine_time: Duration::from_secs(number("limits.quarantine_time")),
            check_interval: Duration::from_secs(number("limits.check_interval")),
            scrub_rate_max: number("limits.scrub_rate_max"),
            log_bytes_max: number("limits.log_bytes_max"),
            overlay_bytes_max: number("limits.overlay_bytes_max"),
            cache_bytes: number("limits.cache_bytes"),
            pack_bytes_max: number("limits.pack_bytes_max"),
            raw_bytes_min: number("limits.raw_bytes_min"),
            reserve_bytes: number("limits.reserve_bytes"),
            events_max: number("limits.events_max"),
            metadata_round_trip: Duration::from_micros(number("trial.metadata_round_trip")),
        }
    }
}

/// Where the web console is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsolePlace {
    Admin,
    S3,
    Off,
}

impl ConsolePlace {
    /// Of a value that the table of settings allows.
    pub fn of(text: Option<&str>) -> ConsolePlace {
        match text {
            Some("s3") => ConsolePlace::S3,
            Some("off") => ConsolePlace::Off,
            _ => ConsolePlace::Admin,
        }
    }
}

/// An identity provider whose tokens are accepted.
#[derive(Clone, Debug)]
pub struct Oidc {
    pub issuer: String,
    pub audience: String,
    pub keys: OidcKeys,
    /// PEM file.
    pub ca: Option<PathBuf>,
}

/// The source of a provider's public keys.
#[derive(Clone, Debug)]
pub enum OidcKeys {
    File(PathBuf),
    Fetched(KeyLocation),
}

impl Oidc {
    /// The error says what is missing.
    fn build(text: impl Fn(&str) -> Option<String>) -> Result<Option<Oidc>, String> {
        let (issuer, audience) = match (text("oidc.issuer"), text("oidc.audience")) {
            (None, None) if text("oidc.keys").is_none() && text("oidc.ca").is_none() => return Ok(None),
            (Some(issuer), Some(audience)) => (issuer, audience),
            _ => return Err("oidc.issuer and oidc.audience are set together or not at all".to_owned()),
        };
        let is_url = |keys: &String| keys.starts_with("https://") || keys.starts_with("http://");
        let mut place = match text("oidc.keys") {
            Some(keys) if !is_url(&keys) => {
                return Ok(Some(Oidc { issuer, audience, keys: OidcKeys::File(PathBuf::from(keys)), ca: None }));
            }
            Some(url) => KeyLocation::Keys(Endpoint::parse(&url).map_err(|error| format!("oidc.keys: {error}"))?),
            None => KeyLocation::of_issuer(&issuer).map_err(|error| format!("oidc.issuer: {error}"))?,
        };
        if place.endpoint().has_password() {
            return Err("oidc: the URL of keys has no user and no password".to_owned());
        }
        let ca = text("oidc.ca").map(PathBuf::from);
        if place.endpoint().is_secure() && ca.is_none() {
            return Err("oidc: keys are fetched from https://, so oidc.ca must name a PEM file".to_owned());
        }
        Ok(Some(Oidc { issuer, audience, keys: OidcKeys::Fetched(place), ca }))
    }
}

/// Where the rows of a volume are that several servers share.
#[derive(Clone, Debug)]
pub struct SharedSettings {
    pub postgres: PostgresOptions,
    /// Where other servers read what this one stores.
    pub store_address: String,
    /// Whether servers ask each other with TLS.
    pub tls: StoreTls,
    /// Where the server stands; empty: nobody says.
    pub rack: String,
    /// `None`: it has clients, and copies of what others write.
    pub role: Option<Role>,
}

/// What the setting says; the table allows these three.
fn role(name: Option<String>) -> Option<Role> {
    match name.as_deref() {
        Some("endpoint") => Some(Role::Endpoint),
        Some("gateway") => Some(Role::Gateway),
        _ => None,
    }
}

impl SharedSettings {
    /// `text`: what a setting says.
    fn build(text: &dyn Fn(&str) -> Option<String>) -> Result<Option<SharedSettings>, String> {
        let metadata = text("metadata").unwrap_or_default();
        let (tls, role) = (store_tls(text("store_tls").as_deref()), role(text("role")));
        if metadata == "embedded" {
            if let Some(role) = role {
                return Err(format!(
                    "role is {0}, and a server of its own is no {0}: the servers of a shared volume may be one, and need --metadata \
                     postgres://USER@HOST/DATABASE",
                    role.name()
                ));
            }
            return Ok(None);
        }
        if !["postgres://", "postgresql://"].iter().any(|scheme| metadata.starts_with(scheme)) {
            return Err(format!(
                "metadata is {metadata:?}, and must be embedded or postgres://USER@HOST,HOST/DATABASE"
            ));
        }
        let rack = text("rack").unwrap_or_default();
        if !rack.is_empty() && !margay_volume::is_rack(&rack) {
            return Err(format!("rack is {rack:?}, and must be a name of up to 64 bytes without spaces"));
        }
        let password = std::env::var("PGPASSWORD").ok().map(margay_postgres::Password);
        let (lanes, readers) = (PostgresOptions::LANES, PostgresOptions::READERS);
        let schema = text("metadata_schema").unwrap_or_default();
        let postgres = PostgresOptions { config: metadata, password, schema, lanes, readers };
        let store_address = text("store_address").unwrap_or_default();
        Ok(Some(SharedSettings { postgres, store_address, tls, rack, role }))
    }
}

/// All settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Absolute.
    pub data: PathBuf,
    /// Other directories of the volume.
    pub disks: DiskWish,
    pub address: String,
    /// `None`: no admin port.
    pub admin_address: Option<String>,
    /// Where the web console is.
    pub console: ConsolePlace,
    /// `None`: the embedded engine.
    pub shared: Option<SharedSettings>,
    pub region: String,
    pub domains: Vec<String>,
    pub website_domains: Vec<String>,
    /// Certificate chain and key, PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    pub auth: AuthSettings,
    pub oidc: Option<Oidc>,
    /// SSE-C is accepted on connections without TLS too.
    pub customer_keys_anywhere: bool,
    pub select_dialect: margay_s3::Dialect,
    /// Made at the start; their names are valid.
    pub buckets: Vec<String>,
    pub mounts: Vec<MountWish>,
    pub notify: Vec<Target>,
    /// PEM file.
    pub notify_ca: Option<PathBuf>,
    pub access_log: Option<PathBuf>,
    pub access_log_every: Duration,
    /// File for a line of each request of administration.
    pub audit_log: Option<PathBuf>,
    /// Where spans of requests go.
    pub otlp: Option<OtlpSettings>,
    pub expiry: ExpiryLimits,
    pub log_level: String,
    pub log_format: String,
    pub connection: ConnectionLimits,
    pub storage: StorageLimits,
}

impl Settings {
    /// The error names settings that contradict each other.
    pub fn build(values: &[Resolved]) -> Result<Settings, String> {
        let number = |name: &str| match &find(values, name).value {
            Value::Number(number) => *number,
            other => unreachable!("the table says that {name} is a number, not {other:?}"),
        };
        let text = |name: &str| match &find(values, name).value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        let switch = |name: &str| text(name).as_deref() == Some("true");
        let seconds = |name: &str| Duration::from_secs(number(name));
        let count = |name: &str| usize::try_from(number(name)).unwrap_or(usize::MAX);
        let oidc = Oidc::build(text)?;
        let names = |name: &str| match &find(values, name).value {
            Value::List(names) => names.clone(),
            _ => Vec::new(),
        };
        let notify_ca = text("notify_ca").map(PathBuf::from);
        let expiry = ExpiryLimits {
            day: u32::try_from(number("lifecycle.day_seconds")).unwrap_or(u32::MAX),
            rate_max: number("lifecycle.rate_max"),
            clock_wait: seconds("lifecycle.clock_wait_seconds"),
        };
        let shared = SharedSettings::build(&text)?;
        expect_no_mounts(shared.as_ref(), &names("mounts"))?;
        expect_no_buckets(shared.as_ref(), &names("buckets"))?;
        let disks = disk_wish(text("mirror_metadata"), &names("disks"), number("copies"), shared.is_some())?;
        Ok(Settings {
            disks,
            shared,
            buckets: buckets(names("buckets"))?,
            mounts: mounts(values)?,
            notify: targets(values, notify_ca.is_some())?,
            notify_ca,
            access_log: text("access_log").map(|path| absolute(&path)),
            access_log_every: seconds("access_log_seconds"),
            audit_log: text("audit_log").map(|path| absolute(&path)),
            otlp: OtlpSettings::build(&text)?,
            expiry,
            data: absolute(&text("data").ok_or("data must not be empty")?),
            address: text("address").ok_or("address must not be empty")?,
            admin_address: text("admin_address"),
            console: ConsolePlace::of(text("console").as_deref()),
            region: text("region").unwrap_or_else(|| "us-east-1".to_owned()),
            domains: names("domain"),
            website_domains: names("website_domain"),
            tls: tls(text("tls_certificate"), text("tls_key"))?,
            auth: AuthSettings {
                signature_v2: switch("auth.signature_v2"),
                chunk_verification: switch("auth.chunk_verification"),
            },
            oidc,
            customer_keys_anywhere: text("encryption.customer_keys").is_some_and(|over| over == "any"),
            select_dialect: dialect(text("select.dialect")),
            log_level: text("log_level").unwrap_or_else(|| "info".to_owned()),
            log_format: text("log_format").unwrap_or_else(|| "auto".to_owned()),
            connection: ConnectionLimits {
                connections_max: count("limits.connections_max"),
                header_bytes_max: count("limits.header_bytes_max"),
                header_time_max: seconds("limits.header_seconds_max"),
                idle_time_max: seconds("limits.idle_seconds_max"),
                stall_time_max: seconds("limits.stall_seconds_max"),
                body_rate_min: number("limits.body_rate_min"),
                streams_max: u32::try_from(number("limits.streams_max")).unwrap_or(u32::MAX),
                unread_bytes_max: number("limits.unread_bytes_max"),
                drain_time_max: seconds("limits.drain_seconds_max"),
            },
            storage: StorageLimits::build(number, count),
        })
    }
}

/// The table allows these three.
fn store_tls(name: Option<&str>) -> StoreTls {
    match name {
        Some("require") => StoreTls::Required,
        Some("prefer") => StoreTls::Preferred,
        _ => StoreTls::Off,
    }
}

/// The SQL dialect of S3 Select; the table allows these two.
fn dialect(name: Option<String>) -> margay_s3::Dialect {
    if name.as_deref() == Some("ceph") { margay_s3::Dialect::Ceph } else { margay_s3::Dialect::Aws }
}

/// An endpoint has no clients.
fn expect_no_mounts(shared: Option<&SharedSettings>, mounts: &[String]) -> Result<(), String> {
    if mounts.is_empty() || shared.is_none_or(|shared| shared.role != Some(Role::Endpoint)) {
        return Ok(());
    }
    Err("an endpoint mounts nothing: leave out --mount and the setting mounts, or --endpoint-only".to_owned())
}

/// An endpoint has no clients, and does not know the keys of the volume.
fn expect_no_buckets(shared: Option<&SharedSettings>, buckets: &[String]) -> Result<(), String> {
    if buckets.is_empty() || shared.is_none_or(|shared| shared.role != Some(Role::Endpoint)) {
        return Ok(());
    }
    Err("an endpoint makes no buckets: leave out --bucket and the setting buckets, or --endpoint-only".to_owned())
}

/// Other directories, which only a volume on one machine has.
fn disk_wish(mirror: Option<String>, disks: &[String], copies: u64, is_shared: bool) -> Result<DiskWish, String> {
    let wish = DiskWish {
        mirror: mirror.map(|path| absolute(&path)),
        disks: disks.iter().map(|path| absolute(path)).collect(),
        copies: u32::try_from(copies).ok().filter(|copies| *copies > 0),
        accept_missing: false,
    };
    if is_shared && wish != DiskWish::default() {
        return Err(
            "disks, copies and mirror_metadata are for one machine; with metadata in PostgreSQL set copies with \
             `margay cluster set --copies`"
                .to_owned(),
        );
    }
    Ok(wish)
}

/// Both or neither.
fn tls(certificate: Option<String>, key: Option<String>) -> Result<Option<(PathBuf, PathBuf)>, String> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((PathBuf::from(certificate), PathBuf::from(key)))),
        (None, None) => Ok(None),
        (Some(_), None) => Err("tls_certificate is set but tls_key is not; TLS needs both".to_owned()),
        (None, Some(_)) => Err("tls_key is set but tls_certificate is not; TLS needs both".to_owned()),
    }
}

fn buckets(names: Vec<String>) -> Result<Vec<String>, String> {
    match names.iter().find(|name| !margay_s3::route::fits_bucket_name(name)) {
        None => Ok(names),
        Some(wrong) => Err(format!(
            "buckets: {wrong:?} is no name of a bucket: it has 3 to 63 characters, lower-case letters, digits, dots and hyphens"
        )),
    }
}

fn mounts(values: &[Resolved]) -> Result<Vec<MountWish>, String> {
    let options = match &find(values, "mount_options").value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    };
    let choice = MountChoice::parse(&options)?;
    match &find(values, "mounts").value {
        Value::List(wishes) => wishes.iter().map(|wish| MountWish::parse(wish, choice.clone())).collect(),
        _ => Ok(Vec::new()),
    }
}

/// Targets of notifications; `checked`: certificate authorities are configured.
fn targets(values: &[Resolved], checked: bool) -> Result<Vec<Target>, String> {
    let Value::List(texts) = &find(values, "notify").value else { return Ok(Vec::new()) };
    let targets = texts.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>, String>>()?;
    match targets.iter().find(|target| target.endpoint.is_secure() && !checked) {
        Some(target) => Err(format!("notify: {} is https://, so notify_ca must name a PEM file", target.name)),
        None => Ok(targets),
    }
}

/// An absolute path, so that messages and commands can be pasted anywhere.
fn absolute(path: &str) -> PathBuf {
    let written = PathBuf::from(path);
    std::path::absolute(&written).unwrap_or(written)
}

fn find<'a>(values: &'a [Resolved], name: &str) -> &'a Resolved {
    values.iter().find(|value| value.setting.name == name).expect("every name used here stands in the table")
}
