//! The table of settings: name, kind, default.
//!
//! Why:        flags, environment, file, `margay config`, docs/limits.md and validation all use this one table.
//! Invariants: T1 a name is unique; its environment variable is `MARGAY_` and the name in capitals, `.` as `_`.
//!             T2 every default is valid for its kind (a test parses them all).
//! Not here:   where values come from (`resolve`), what they do (the modules that receive `Settings`).

/// The kind of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A path; empty means not set.
    Path,
    /// `HOST:PORT`.
    Address,
    /// `HOST:PORT` or `off`.
    AddressOrOff,
    /// Texts; separated by commas in flags and environment.
    List,
    Text,
    Choice(&'static [&'static str]),
    /// Bytes, with an optional unit: `4096`, `64KiB`, `128MiB`, `1GiB`, `500MB`.
    Bytes {
        min: u64,
        max: u64,
    },
    Count {
        min: u64,
        max: u64,
    },
    /// Whole seconds.
    Seconds {
        min: u64,
        max: u64,
    },
    /// A decimal number from 0 to 1.
    Ratio,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in the file; the part before `.` is the TOML table.
    pub name: &'static str,
    pub kind: Kind,
    /// The default, as written in the file.
    pub default: &'static str,
    pub about: &'static str,
}

impl Setting {
    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("MARGAY_{}", self.name.replace('.', "_").to_uppercase())
    }
}

const SWITCH: Kind = Kind::Choice(&["true", "false"]);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

const fn setting(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Setting {
    Setting { name, kind, default, about }
}

/// All settings, in the order in which `margay config` shows them.
pub const SETTINGS: &[Setting] = &[
    setting("data", Kind::Path, "./margay-data", "the data directory"),
    setting(
        "mirror_metadata",
        Kind::Path,
        "",
        "a second directory for all metadata, on another disk: both have it before anything is answered",
    ),
    setting(
        "disks",
        Kind::List,
        "",
        "directories for payload, each on a disk of its own; a volume keeps those that it has",
    ),
    setting(
        "copies",
        Kind::Count { min: 0, max: 64 },
        "0",
        "disks that have each piece of payload; 0: as many as before, at first 1",
    ),
    setting("address", Kind::Address, "127.0.0.1:9000", "where the S3 door listens"),
    setting(
        "admin_address",
        Kind::AddressOrOff,
        "127.0.0.1:9001",
        "where /health and /metrics listen, without a password; off closes it",
    ),
    setting(
        "console",
        Kind::Choice(&["admin", "s3", "off"]),
        "admin",
        "where the web console is, below /-/console/: on the admin address, on the S3 address, or nowhere",
    ),
    setting(
        "metadata",
        Kind::Text,
        "embedded",
        "the engine that holds the tree: embedded, or postgres://USER@HOST,HOST/DATABASE, which several servers share",
    ),
    setting("metadata_schema", Kind::Text, "margay", "the schema of the volume in PostgreSQL"),
    setting(
        "store_address",
        Kind::Address,
        "127.0.0.1:9002",
        "where the other servers of a shared volume read what this one stores",
    ),
    setting(
        "store_tls",
        Kind::Choice(&["off", "prefer", "require"]),
        "off",
        "whether servers of a shared volume ask each other with TLS: off, prefer (those that speak it), require (nothing without)",
    ),
    setting("rack", Kind::Text, "", "where the server of a shared volume stands: copies go to different racks"),
    setting(
        "role",
        Kind::Choice(&["both", "endpoint", "gateway"]),
        "both",
        "what the server of a shared volume is for: an endpoint keeps copies and opens no S3 door, a gateway gets no copies of what others write",
    ),
    setting("region", Kind::Text, "us-east-1", "what clients are told when they ask for the region"),
    setting("domain", Kind::List, "", "host names under which BUCKET.NAME addresses a bucket"),
    setting("website_domain", Kind::List, "", "host names under which BUCKET.NAME shows the bucket's website"),
    setting("tls_certificate", Kind::Path, "", "PEM file with the certificate chain; turns TLS on"),
    setting("tls_key", Kind::Path, "", "PEM file with the private key of the certificate"),
    setting("auth.signature_v2", SWITCH, "true", "accept Signature Version 2 (HMAC-SHA1) beside Version 4"),
    setting(
        "auth.chunk_verification",
        SWITCH,
        "true",
        "verify payload hashes and the signatures of chunks; false saves their processor time and takes altered bodies",
    ),
    setting("oidc.issuer", Kind::Text, "", "identity provider whose tokens open roles, as its tokens name it"),
    setting("oidc.audience", Kind::Text, "", "what the provider's tokens must be made for"),
    setting(
        "oidc.keys",
        Kind::Path,
        "",
        "file with the provider's public keys (JWKS), or their URL; without it they are fetched from where the issuer says",
    ),
    setting("oidc.ca", Kind::Path, "", "PEM file with the authorities that a provider with https:// is checked by"),
    setting(
        "encryption.customer_keys",
        Kind::Choice(&["tls", "any"]),
        "tls",
        "connections that may bring a key of the client (SSE-C): with TLS, or any (behind a proxy that ends TLS)",
    ),
    setting(
        "select.dialect",
        Kind::Choice(&["aws", "ceph"]),
        "aws",
        "whose SQL S3 Select takes where they differ, see docs/s3.md",
    ),
    setting("buckets", Kind::List, "", "buckets that a start makes unless they are there"),
    setting("mounts", Kind::List, "", "BUCKET=DIR or BUCKET/PREFIX=DIR: buckets to mount as file systems"),
    setting("mount_options", Kind::Text, "", "for all of mounts: ro, sync, writeback, uid=, gid=, umask=, ..."),
    setting("notify", Kind::List, "", "NAME=URL: targets that notifications of buckets may name"),
    setting("notify_ca", Kind::Path, "", "PEM file with the authorities that targets with https:// are checked by"),
    setting("access_log", Kind::Path, "", "file for a line of each request, in the format of AWS's access log"),
    setting(
        "access_log_seconds",
        Kind::Seconds { min: 1, max: 86_400 },
        "300",
        "how often buckets with logging get their lines as an object",
    ),
    setting("audit_log", Kind::Path, "", "file for a line of JSON of each request of administration"),
    setting(
        "otlp_endpoint",
        Kind::Text,
        "",
        "URL of an OpenTelemetry collector (OTLP over HTTP, http://HOST:4318) that gets a span of each request; empty sends none",
    ),
    setting(
        "otlp_ca",
        Kind::Path,
        "",
        "PEM file with the authorities that a collector with https:// is checked by [system's]",
    ),
    setting(
        "otlp_sample_ratio",
        Kind::Ratio,
        "1",
        "of requests that do not say themselves whether they are traced (traceparent), this part gets a span: 0 to 1",
    ),
    setting("otlp_service", Kind::Text, "margay", "the name of this server in traces (service.name)"),
    setting("log_level", Kind::Text, "info", "error, warn, info, debug, trace, or TARGET=LEVEL,..."),
    setting("log_format", Kind::Choice(&["auto", "text", "json"]), "auto", "auto is text on a terminal, else json"),
    setting(
        "lifecycle.day_seconds",
        Kind::Seconds { min: 1, max: 86_400 },
        "86400",
        "length of a day to lifecycle rules; less than 86400 is for tests",
    ),
    setting(
        "lifecycle.rate_max",
        Kind::Count { min: 1, max: 1_000_000 },
        "1000",
        "objects, versions and uploads per second that expiry removes",
    ),
    setting(
        "lifecycle.clock_wait_seconds",
        Kind::Seconds { min: 0, max: 31_536_000 },
        "604800",
        "how long expiry waits before it believes a clock that is days ahead; 0 waits for `margay clock confirm`",
    ),
    setting(
        "limits.connections_max",
        Kind::Count { min: 1, max: 1_000_000 },
        "16384",
        "open S3 connections; one more is answered 503 SlowDown",
    ),
    setting(
        "limits.header_bytes_max",
        Kind::Bytes { min: 8 * KIB, max: MIB },
        "32KiB",
        "the head of one request; more is answered 431",
    ),
    setting(
        "limits.header_seconds_max",
        Kind::Seconds { min: 1, max: 600 },
        "20",
        "from the first byte of a request to the end of its head, and for a TLS handshake",
    ),
    setting("limits.idle_seconds_max", Kind::Seconds { min: 1, max: 86_400 }, "120", "a connection without a request"),
    setting(
        "limits.stall_seconds_max",
        Kind::Seconds { min: 1, max: 3600 },
        "30",
        "a client that neither sends the announced body nor takes the answer",
    ),
    setting(
        "limits.body_rate_min",
        Kind::Bytes { min: 0, max: GIB },
        "1KiB",
        "bytes per second that a body must bring on average after limits.stall_seconds_max; 0 allows any",
    ),
    setting(
        "limits.unread_bytes_max",
        Kind::Bytes { min: MIB, max: 1024 * GIB },
        "512MiB",
        "answers in memory that clients have not taken; then requests wait, and the slowest connection is closed",
    ),
    setting(
        "limits.streams_max",
        Kind::Count { min: 1, max: 10_000 },
        "128",
        "requests at once on one HTTP/2 connection",
    ),
    setting(
        "limits.drain_seconds_max",
        Kind::Seconds { min: 0, max: 3600 },
        "30",
        "for running requests after SIGTERM",
    ),
    setting("limits.io_threads_max", Kind::Count { min: 1, max: 1024 }, "64", "threads that wait for the disk"),
    setting(
        "trial.metadata_round_trip",
        Kind::Count { min: 0, max: 60_000_000 },
        "0",
        "microseconds that every call of the metadata takes longer, to try out what an engine on another machine costs",
    ),
    setting(
        "limits.events_max",
        Kind::Count { min: 1, max: 100_000_000 },
        "1000000",
        "events that wait for their targets; a change that would queue one more is answered 503 SlowDown",
    ),
    setting(
        "limits.log_bytes_max",
        Kind::Bytes { min: 8 * MIB, max: 4 * GIB },
        "120MiB",
        "metadata log that a start may have to replay: the file being written and the one being folded",
    ),
    setting(
        "limits.overlay_bytes_max",
        Kind::Bytes { min: 4 * MIB, max: 64 * GIB },
        "192MiB",
        "memory for rows that are not yet in the tree file; while those are folded, a second one fills",
    ),
    setting(
        "limits.paths_max",
        Kind::Count { min: 16, max: 100_000_000 },
        "16384",
        "directories whose path is kept in memory",
    ),
    setting(
        "limits.file_memory_bytes_max",
        Kind::Bytes { min: 64 * KIB, max: GIB },
        "16MiB",
        "bytes written to one open file of a mount that wait in memory; more go to the disk at once",
    ),
    setting(
        "limits.files_memory_bytes_max",
        Kind::Bytes { min: MIB, max: 64 * GIB },
        "256MiB",
        "the same for all open files together",
    ),
    setting(
        "limits.known_files_max",
        Kind::Count { min: 16, max: 1_000_000_000 },
        "1000000",
        "files of a mount that the kernel knows before it is asked to forget some (Linux 6.18); each costs about 200 bytes",
    ),
    setting(
        "limits.reclaim_rate_max",
        Kind::Bytes { min: MIB, max: TIB },
        "64MiB",
        "live bytes per second that reclaim moves to give dead space back",
    ),
    setting(
        "limits.quarantine_time",
        Kind::Seconds { min: 0, max: 30 * 86_400 },
        "3600",
        "seconds that a segment without live data is kept, renamed, before it is removed; cut while less than 10 % of the disk is free",
    ),
    setting(
        "limits.check_interval",
        Kind::Seconds { min: 1, max: 365 * 86_400 },
        "86400",
        "seconds between two checks of a running server that all rows and segments fit together",
    ),
    setting(
        "limits.scrub_rate_max",
        Kind::Bytes { min: MIB, max: TIB },
        "128MiB",
        "bytes per second that a scrub beside a running server reads",
    ),
    setting("limits.cache_bytes", Kind::Bytes { min: 4 * MIB, max: TIB }, "256MiB", "cache of the tree file"),
    setting(
        "limits.pack_bytes_max",
        Kind::Bytes { min: MIB, max: 16 * GIB },
        "256MiB",
        "a pack segment is sealed at this size",
    ),
    setting(
        "limits.raw_bytes_min",
        Kind::Bytes { min: 64 * KIB, max: 16 * GIB },
        "16MiB",
        "an object of this size gets a segment of its own",
    ),
    setting(
        "limits.reserve_bytes",
        Kind::Bytes { min: MIB, max: TIB },
        "256MiB",
        "free space that data writes leave to deletes and checkpoints",
    ),
];
