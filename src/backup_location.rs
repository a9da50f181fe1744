//! The location of a backup: a directory, or a bucket of any S3 store.
//!
//! Why:        a backup in a bucket consists of the same files, on another implementation of the disk port.
//! Invariants: P1 keys are never shown: they pass from the command to the server through the control socket only. The server
//!                gets those of that moment, and cannot renew them.
//! Not here:   the content of a backup (margay-volume), files in buckets (margay-client).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use margay_client::bucket::Bucket;
use margay_client::credentials::{Keys, Places, Profile, Variables};
use margay_client::disk::BucketDisk;
use margay_client::target::{Addressing, parse_endpoint, plain_endpoint};
use margay_client::{ClientError, Condition, Credentials, KeyChain, REGION_DEFAULT, Target, tls};
use margay_env::Env;
use serde_json::{Value, json};

/// The prefix of a location in a bucket.
const SCHEME: &str = "s3://";
/// Random bytes in the name of a probe object.
const MARK_BYTES: usize = 16;

/// The location of a backup.
#[derive(Clone, Debug)]
pub enum BackupLocation {
    /// Absolute when a server is to use it.
    Directory(PathBuf),
    Bucket(BucketLocation),
}

/// A bucket, or a prefix in it, and the credentials for it.
#[derive(Clone)]
pub struct BucketLocation {
    pub endpoint: String,
    pub region: String,
    pub addressing: Addressing,
    pub bucket: String,
    /// Empty: the whole bucket.
    pub prefix: String,
    pub keys: KeyChain,
    /// Absolute.
    pub ca: Option<PathBuf>,
}

impl std::fmt::Debug for BucketLocation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{self} at {}", self.endpoint)
    }
}

impl std::fmt::Display for BucketLocation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(out, "{SCHEME}{}{slash}{}", self.bucket, self.prefix)
    }
}

impl std::fmt::Display for BackupLocation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BackupLocation::Directory(path) => path.display().fmt(out),
            BackupLocation::Bucket(place) => place.fmt(out),
        }
    }
}

/// Options of commands that take a location.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct StoreArgs {
    /// Store of an s3:// place [default: $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, that of the profile, or AWS]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Profile of AWS's files with the keys, before those of the environment [default: $AWS_PROFILE]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Region of the store [default: $AWS_REGION, that of the profile, or us-east-1]
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Where requests name the bucket: path, virtual (in the host) or auto: virtual at AWS [default: that of the profile, or auto]
    #[arg(long, value_name = "WAY")]
    pub addressing: Option<String>,
    /// PEM file of the authority that signed the store's certificate [default: $AWS_CA_BUNDLE or the system's]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

impl StoreArgs {
    /// Whether one of them is on the command line.
    pub fn is_given(&self) -> bool {
        let texts = [&self.endpoint, &self.profile, &self.region, &self.addressing];
        self.ca.is_some() || texts.into_iter().any(Option::is_some)
    }
}

/// An opened location.
#[derive(Debug)]
pub struct Opened {
    /// The ports, with the disk that holds the backup.
    pub env: Env,
    /// The backup's path on that disk.
    pub path: PathBuf,
    bucket: Option<BucketDisk>,
}

impl BackupLocation {
    /// Parses a location of a command line, and looks for its keys, which may take seconds. The error says what is
    /// missing.
    pub fn parse(env: &Env, named: &Path, args: &StoreArgs, variables: &Variables) -> Result<BackupLocation, String> {
        let place = BackupLocation::named(env, named, args, variables)?;
        if let BackupLocation::Bucket(place) = &place {
            place.keys.keys_now().map_err(|error| format!("{}: {error}", named.display()))?;
        }
        Ok(place)
    }

    /// As `parse`, without looking for keys.
    pub fn named(env: &Env, named: &Path, args: &StoreArgs, variables: &Variables) -> Result<BackupLocation, String> {
        let absolute = |path: &Path| std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()));
        let Some(rest) = named.to_str().and_then(|named| named.strip_prefix(SCHEME)) else {
            if args.is_given() {
                return Err(format!(
                    "--endpoint, --profile, --region, --addressing and --ca belong to {SCHEME}BUCKET/PREFIX, not to a directory"
                ));
            }
            return absolute(named).map(BackupLocation::Directory);
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(format!("{} names no bucket: write {SCHEME}BUCKET/PREFIX", named.display()));
        }
        let names = prefix.strip_suffix('/').unwrap_or(prefix).split('/');
        if !prefix.is_empty() && names.into_iter().any(|name| matches!(name, "" | "." | "..")) {
            let named = named.display();
            return Err(format!(
                "{named}: the prefix {prefix:?} has names that are empty, . or ..: write {SCHEME}BUCKET/PREFIX"
            ));
        }
        let prefix = prefix.trim_end_matches('/').to_owned();
        let profile = Profile::load(env, variables, args.profile.as_deref())?;
        let region = variables.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).or_else(|| profile.get("region"));
        let region = args.region.as_deref().or(region).unwrap_or(REGION_DEFAULT).to_owned();
        let endpoint = variables.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]).or_else(|| profile.endpoint("s3"));
        let endpoint = args.endpoint.clone().or_else(|| endpoint.map(str::to_owned));
        let ca = variables.get("AWS_CA_BUNDLE").or_else(|| profile.get("ca_bundle")).map(PathBuf::from);
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = plain_endpoint(&endpoint).map_err(|error| error.to_string())?;
        let way = args.addressing.as_deref().or_else(|| profile.get("s3.addressing_style")).unwrap_or("auto");
        let addressing = Addressing::choose(way, &endpoint, bucket).map_err(|error| error.to_string())?;
        let keys = Places { variables: variables.clone(), profile: args.profile.clone() };
        let keys = KeyChain::looked_for(env, keys);
        Ok(BackupLocation::Bucket(BucketLocation {
            endpoint,
            region,
            addressing,
            bucket: bucket.to_owned(),
            prefix,
            keys,
            ca: args.ca.clone().or(ca).as_deref().map(absolute).transpose()?,
        }))
    }

    /// The form for the control socket, with the keys of this moment.
    pub fn to_json(&self) -> Result<Value, String> {
        let place = match self {
            BackupLocation::Directory(path) => return Ok(json!(path.display().to_string())),
            BackupLocation::Bucket(place) => place,
        };
        let keys = place.keys.keys_now().map_err(|error| format!("{place}: {error}"))?;
        Ok(json!({
            "endpoint": place.endpoint,
            "region": place.region,
            "virtual": place.addressing == Addressing::Virtual,
            "bucket": place.bucket,
            "prefix": place.prefix,
            "access_key": keys.pair.access_key,
            "secret_key": keys.pair.secret_key,
            "session_token": keys.session_token.as_ref().map(|token| &token.0),
            "ca": place.ca.as_ref().map(|ca| ca.display().to_string()),
        }))
    }

    pub fn from_json(value: &Value) -> Result<BackupLocation, String> {
        if value.is_object() {
            let text = |name: &str| {
                let text = value[name].as_str().ok_or_else(|| format!("the place of the backup lacks {name}"));
                text.map(str::to_owned)
            };
            let pair = Credentials { access_key: text("access_key")?, secret_key: text("secret_key")? };
            return Ok(BackupLocation::Bucket(BucketLocation {
                endpoint: text("endpoint")?,
                region: text("region")?,
                addressing: if value["virtual"] == true { Addressing::Virtual } else { Addressing::Path },
                bucket: text("bucket")?,
                prefix: text("prefix")?,
                keys: KeyChain::fixed(Keys::permanent(pair, value["session_token"].as_str().map(str::to_owned))),
                ca: value["ca"].as_str().map(PathBuf::from),
            }));
        }
        let path = PathBuf::from(value.as_str().ok_or("the request lacks to")?);
        if !path.is_absolute() {
            return Err("the backup's directory must be named by an absolute path".to_owned());
        }
        Ok(BackupLocation::Directory(path))
    }

    /// Checks that a bucket exists; blocks, and creates nothing.
    pub fn open(&self, env: &Env) -> Result<Opened, String> {
        let place = match self {
            BackupLocation::Directory(path) => {
                return Ok(Opened { env: env.clone(), path: path.clone(), bucket: None });
            }
            BackupLocation::Bucket(place) => place,
        };
        let target = place.target()?;
        let bucket = Bucket::new(target, &place.bucket);
        let bucket = bucket.map_err(|error| format!("{place}: {error}"))?;
        bucket.check().map_err(|error| format!("{place}: {}", bucket.explain(&error)))?;
        let disk = BucketDisk::new(env, bucket, &place.prefix);
        let env = Env { disk: Arc::new(disk.clone()), ..env.clone() };
        Ok(Opened { env, path: PathBuf::new(), bucket: Some(disk) })
    }
}

impl BucketLocation {
    /// The store, and the keys for it.
    pub fn target(&self) -> Result<Arc<Target>, String> {
        let wrong = |error: ClientError| format!("{self}: {error}");
        let (mut host, port, secure, mut authority) = parse_endpoint(&self.endpoint).map_err(wrong)?;
        if self.addressing == Addressing::Virtual {
            host = format!("{}.{host}", self.bucket);
            authority = format!("{}.{authority}", self.bucket);
        }
        let tls = secure.then(|| tls::Connector::new(&host, self.ca.as_deref())).transpose().map_err(wrong)?;
        let (region, credentials) = (self.region.clone(), self.keys.clone());
        Ok(Arc::new(Target { authority, host, port, region, credentials, tls, addressing: self.addressing }))
    }
}

impl Opened {
    /// Writes a probe object with a random key into the bucket and returns the key; `None` for a directory. Blocks.
    pub fn put_mark(&self) -> Result<Option<String>, String> {
        let Some(disk) = &self.bucket else { return Ok(None) };
        let mut chance = [0; MARK_BYTES];
        self.env.random.fill(&mut chance);
        let name = base16ct::lower::encode_string(&chance);
        let key = disk.key(&self.path.join(format!("mark-{name}"))).map_err(|error| error.to_string())?;
        let put = disk.bucket().put(&key, Bytes::new(), Condition::Absent);
        put.map_err(|error| disk.bucket().explain(&error))?;
        Ok(Some(key))
    }

    /// Removes a probe object. Blocks.
    pub fn remove_mark(&self, key: &str) -> Result<(), String> {
        let Some(disk) = &self.bucket else { return Ok(()) };
        disk.bucket().delete(key).map_err(|error| disk.bucket().explain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    const KEYS: [(&str, &str); 4] = [
        ("AWS_ACCESS_KEY_ID", "visible"),
        ("AWS_SECRET_ACCESS_KEY", "hidden"),
        ("AWS_SESSION_TOKEN", ""),
        ("AWS_REGION", "eu-north-1"),
    ];

    #[test]
    fn places_are_read_and_travel_without_being_shown() {
        let env = Env::real();
        let parse =
            |text: &str, args: &StoreArgs| BackupLocation::parse(&env, Path::new(text), args, &variables(&KEYS));
        let none = StoreArgs::default();
        let place = parse("s3://b/p/q/", &none).unwrap();
        assert_eq!(place.to_string(), "s3://b/p/q");
        assert!(!format!("{place:?}").contains("hidden"));
        let back = BackupLocation::from_json(&place.to_json().unwrap()).unwrap();
        assert_eq!(back.to_json(), place.to_json());
        let BackupLocation::Bucket(place) = back else { panic!("not a bucket") };
        assert_eq!((place.endpoint.as_str(), place.prefix.as_str()), ("https://s3.eu-north-1.amazonaws.com", "p/q"));
        assert_eq!(place.keys.fixed_pair().map(|pair| pair.access_key.as_str()), Some("visible"));
        assert!(matches!(parse("relative", &none), Ok(BackupLocation::Directory(path)) if path.is_absolute()));
        for wrong in ["s3://", "s3:///p", "s3://b/a/../c", "s3://b/a//c", "s3://b//a", "s3://b/a//", "s3://b//"] {
            assert!(parse(wrong, &none).is_err(), "{wrong}");
        }
        let named = StoreArgs { endpoint: Some("http://127.0.0.1:1".to_owned()), ..StoreArgs::default() };
        assert!(parse("/mnt/backup", &named).is_err());
        let without = variables(&[("AWS_EC2_METADATA_DISABLED", "true")]);
        let without = BackupLocation::parse(&env, Path::new("s3://b"), &none, &without);
        assert!(without.unwrap_err().contains("AWS_ACCESS_KEY_ID"));
        assert!(
            BackupLocation::from_json(&json!("relative")).is_err()
                && BackupLocation::from_json(&json!({ "bucket": "b" })).is_err()
        );
    }
}
