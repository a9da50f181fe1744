//! Flags that several commands share, and their translation into settings.

use std::collections::BTreeMap;

use margay_env::Env;
use margay_env::files;

use crate::exit::Failure;
use crate::settings::Settings;
use crate::settings::resolve::{Found, Resolved, resolve};

/// Maximum size of a settings file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Data directory and settings file, as most commands need them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DataArgs {
    /// Data directory [default: ./margay-data]
    #[arg(long, value_name = "DIR", global = true)]
    pub data: Option<String>,
    /// File of settings (TOML); also MARGAY_CONFIG
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<String>,
    /// Any setting by its name, for example --set limits.cache_bytes=1GiB; may be repeated
    #[arg(long, value_name = "NAME=VALUE", global = true)]
    pub set: Vec<String>,
}

/// All flags of a server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// A second directory for all metadata, on another disk: both have it before anything is answered
    #[arg(long, value_name = "DIR")]
    mirror_metadata: Option<String>,
    /// A directory for payload, on a disk of its own; may be repeated. A volume keeps those that it has
    #[arg(long, value_name = "DIR")]
    disk: Vec<String>,
    /// How many of the disks have each piece of payload [default: as before, at first 1]
    #[arg(long, value_name = "COUNT")]
    copies: Option<String>,
    /// Start without directories that are lost, and take empty ones in their place
    #[arg(long)]
    pub accept_missing_disks: bool,
    /// Where the S3 door listens [default: 127.0.0.1:9000]
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// Where /health and /metrics listen, without a password; `off` closes it [default: 127.0.0.1:9001]
    #[arg(long, value_name = "HOST:PORT")]
    admin_address: Option<String>,
    /// Where the web console is, below /-/console/: admin, s3 or off [default: admin]
    #[arg(long, value_name = "WHERE")]
    console: Option<String>,
    /// The engine that holds the tree: `embedded`, or postgres://USER@HOST,HOST/DATABASE, which several servers share
    /// [default: embedded]
    #[arg(long, value_name = "ENGINE")]
    metadata: Option<String>,
    /// Where the other servers of a shared volume read what this one stores [default: 127.0.0.1:9002]
    #[arg(long, value_name = "HOST:PORT")]
    store_address: Option<String>,
    /// Whether servers of a shared volume ask each other with TLS: off, prefer (those that speak it) or require
    /// [default: off]
    #[arg(long, value_name = "HOW")]
    store_tls: Option<String>,
    /// The rack in which this server stands: copies of a shared volume go to different racks
    #[arg(long, value_name = "NAME")]
    rack: Option<String>,
    /// Keep copies for the other servers of a shared volume, and open no S3 door and no mount
    #[arg(long, conflicts_with = "gateway_only")]
    endpoint_only: bool,
    /// Keep only what this server writes itself, and no copies of what others write
    #[arg(long)]
    gateway_only: bool,
    /// The region that clients are told [default: us-east-1]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Host name under which BUCKET.NAME addresses a bucket; may be repeated
    #[arg(long, value_name = "NAME")]
    domain: Vec<String>,
    /// Bucket that the start makes unless it is there; may be repeated
    #[arg(long, value_name = "NAME")]
    bucket: Vec<String>,
    /// Mounts a bucket as a file system, created if absent: BUCKET=DIR or BUCKET/PREFIX=DIR; may be repeated. With --upstream: DIR
    #[arg(long, value_name = "BUCKET=DIR")]
    mount: Vec<String>,
    /// Options of all mounts: ro, sync, writeback, uid=, gid=, umask=, ...
    #[arg(long, value_name = "WORD,...")]
    mount_options: Option<String>,
    /// Certificate chain (PEM); enables TLS. Replaced files are loaded without a restart
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<String>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// error, warn, info, debug, trace, or TARGET=LEVEL,... [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// auto, text or json; auto is text on a terminal [default: auto]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl DataArgs {
    fn flags(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut flags = Vec::new();
        for pair in &self.set {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Failure::usage(format!("--set {pair}: write --set NAME=VALUE, `margay config` shows the names"))
            })?;
            flags.push((name.trim().to_owned(), value.to_owned()));
        }
        flags.extend(self.data.iter().map(|data| ("data".to_owned(), data.clone())));
        Ok(flags)
    }

    /// Every setting, with its source.
    pub(crate) fn resolve(&self, env: &Env) -> Result<Vec<Resolved>, Failure> {
        self.resolve_with(env, Vec::new())
    }

    fn resolve_with(&self, env: &Env, more: Vec<(String, String)>) -> Result<Vec<Resolved>, Failure> {
        let mut flags = self.flags()?;
        flags.extend(more);
        let environment: BTreeMap<String, String> = environment();
        let file = match self.config.as_ref().or_else(|| environment.get("MARGAY_CONFIG")) {
            Some(path) => {
                let bytes = files::read(env, path.as_ref(), FILE_BYTES_MAX).map_err(|error| {
                    Failure::usage(format!("{path} cannot be read: {error}; {}", files::remedy(&error)))
                })?;
                let text = String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{path} is not UTF-8 text")))?;
                Some((path.clone(), text))
            }
            None => None,
        };
        resolve(&Found { flags, environment, file }).map_err(Failure::usage)
    }

    /// As `settings`, for a command that may name the database of a shared volume.
    pub(crate) fn settings_with_metadata(&self, env: &Env, metadata: Option<&str>) -> Result<Settings, Failure> {
        let more = metadata.iter().map(|url| ("metadata".to_owned(), (*url).to_owned())).collect();
        Settings::build(&self.resolve_with(env, more)?).map_err(Failure::usage)
    }

    pub(crate) fn settings(&self, env: &Env) -> Result<Settings, Failure> {
        Settings::build(&self.resolve(env)?).map_err(Failure::usage)
    }
}

impl ServerArgs {
    /// Whether copies in other directories are asked for.
    pub(crate) fn names_disks(&self) -> bool {
        self.mirror_metadata.is_some() || !self.disk.is_empty() || self.copies.is_some() || self.accept_missing_disks
    }

    /// Whether buckets are to be made.
    pub(crate) fn names_buckets(&self) -> bool {
        !self.bucket.is_empty()
    }

    /// The mounts apart from the other flags.
    pub(crate) fn without_mounts(&self) -> (ServerArgs, Vec<String>) {
        let mut server = self.clone();
        let mounts = std::mem::take(&mut server.mount);
        (server, mounts)
    }

    pub(crate) fn resolve(&self, env: &Env) -> Result<Vec<Resolved>, Failure> {
        let single = [
            ("mirror_metadata", &self.mirror_metadata),
            ("copies", &self.copies),
            ("address", &self.address),
            ("admin_address", &self.admin_address),
            ("console", &self.console),
            ("metadata", &self.metadata),
            ("store_address", &self.store_address),
            ("store_tls", &self.store_tls),
            ("rack", &self.rack),
            ("region", &self.region),
            ("tls_certificate", &self.tls_certificate),
            ("tls_key", &self.tls_key),
            ("mount_options", &self.mount_options),
            ("log_level", &self.log_level),
            ("log_format", &self.log_format),
        ];
        let mut flags: Vec<(String, String)> = single
            .into_iter()
            .filter_map(|(name, value)| value.as_ref().map(|value| (name.to_owned(), value.clone())))
            .collect();
        let roles = [(self.endpoint_only, "endpoint"), (self.gateway_only, "gateway")];
        let roles = roles.into_iter().filter(|(is_given, _)| *is_given);
        flags.extend(roles.map(|(_, role)| ("role".to_owned(), role.to_owned())));
        flags.extend(self.disk.iter().map(|path| ("disks".to_owned(), path.clone())));
        flags.extend(self.domain.iter().map(|name| ("domain".to_owned(), name.clone())));
        flags.extend(self.bucket.iter().map(|name| ("buckets".to_owned(), name.clone())));
        flags.extend(self.mount.iter().map(|wish| ("mounts".to_owned(), wish.clone())));
        self.data.resolve_with(env, flags)
    }
}

/// Environment variables with our prefix; values that are not UTF-8 cannot be ours.
pub(crate) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with("MARGAY_"))
        .collect()
}
