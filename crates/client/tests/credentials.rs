//! Keys from each place where AWS's tools find them, with real files, real processes and servers; and their renewal.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests lay out files themselves")]

#[path = "credentials/giver.rs"]
mod giver;
#[path = "upstream/listen.rs"]
mod listen;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use giver::{Giver, VALID};
use margay_client::Target;
use margay_client::credentials::{KeyChain, Places, Profile, Variables};
use margay_client::upstream::{Limits, Upstream};
use margay_env::Env;
use margay_env::sim::SimClock;

/// Longer than a file is trusted, shorter than anything else.
const SOON: Duration = Duration::from_secs(2);

/// A home directory, and a clock that the test moves.
struct Home {
    folder: tempfile::TempDir,
    env: Env,
}

impl Home {
    fn new(clock: Arc<SimClock>) -> Home {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".aws")).unwrap();
        Home { folder, env: Env { clock, ..Env::real() } }
    }

    fn at_rest() -> (Home, Arc<SimClock>) {
        let clock = Arc::new(SimClock::new(margay_env::Timestamp(1_800_000_000_000_000_000)));
        (Home::new(Arc::clone(&clock)), clock)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn variables(&self, pairs: &[(&str, &str)]) -> Variables {
        let home = self.folder.path().display().to_string();
        let usual = [("HOME", home.as_str()), ("AWS_EC2_METADATA_DISABLED", "true")];
        usual.iter().chain(pairs).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn chain(&self, pairs: &[(&str, &str)]) -> KeyChain {
        self.chain_as(None, pairs)
    }

    fn chain_as(&self, profile: Option<&str>, pairs: &[(&str, &str)]) -> KeyChain {
        let places = Places { variables: self.variables(pairs), profile: profile.map(str::to_owned) };
        KeyChain::looked_for(&self.env, places)
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// The access key, and the session token.
async fn keys_of(chain: &KeyChain) -> (String, Option<String>) {
    let keys = chain.keys().await.unwrap();
    (keys.pair.access_key.clone(), keys.session_token.clone().map(|token| token.0))
}

async fn access_key_of(chain: &KeyChain) -> String {
    keys_of(chain).await.0
}

async fn error_of(chain: &KeyChain) -> String {
    chain.keys().await.unwrap_err().to_string()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

const ENVIRONMENT: [(&str, &str); 3] =
    [("AWS_ACCESS_KEY_ID", "of-env"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_SESSION_TOKEN", "t")];

#[test]
fn the_environment_comes_first_unless_a_profile_was_named() {
    run(async {
        let (home, _) = Home::at_rest();
        home.write(".aws/credentials", "[default]\naws_access_key_id = of-file\naws_secret_access_key = s\n[two]\naws_access_key_id = of-two\naws_secret_access_key = s\naws_session_token = t2\n");
        assert_eq!(keys_of(&home.chain(&ENVIRONMENT)).await, ("of-env".to_owned(), Some("t".to_owned())));
        assert_eq!(keys_of(&home.chain(&[])).await, ("of-file".to_owned(), None));
        assert_eq!(access_key_of(&home.chain(&[("AWS_PROFILE", "two")])).await, "of-two");
        let both = [ENVIRONMENT.as_slice(), &[("AWS_PROFILE", "two")]].concat();
        assert_eq!(access_key_of(&home.chain(&both)).await, "of-env");
        let named = home.chain_as(Some("two"), &ENVIRONMENT);
        assert_eq!(keys_of(&named).await, ("of-two".to_owned(), Some("t2".to_owned())));
        assert!(error_of(&home.chain_as(Some("three"), &ENVIRONMENT)).await.contains("no profile three"));
        assert!(error_of(&home.chain(&ENVIRONMENT[..1])).await.contains("AWS_SECRET_ACCESS_KEY is not"));
    });
}

#[test]
fn without_keys_every_place_that_was_looked_at_is_named() {
    run(async {
        let (giver, url, _) = Giver::start().await;
        giver.is_down.store(true, Ordering::SeqCst);
        let home = Home::new(Arc::clone(&giver.clock));
        let config = home.write("other-config", "[default]\nregion = eu-north-1\n");
        let pairs = [
            ("AWS_EC2_METADATA_DISABLED", "no"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.as_str()),
            ("AWS_CONFIG_FILE", path(&config)),
        ];
        let said = error_of(&home.chain(&pairs)).await;
        let credentials = home.folder.path().join(".aws/credentials").display().to_string();
        let places =
            ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", &credentials, path(&config), "container", &url];
        for place in places {
            assert!(said.contains(place), "{place}: {said}");
        }
        assert!(said.contains("it answered 503") && !said.contains('\n'), "{said}");
        assert!(error_of(&home.chain(&[])).await.contains("AWS_EC2_METADATA_DISABLED"));
    });
}

#[test]
fn a_file_that_changed_is_read_again() {
    run(async {
        let (home, clock) = Home::at_rest();
        let file = home.write("keys", "[default]\naws_access_key_id=one\naws_secret_access_key=s\n");
        let chain = home.chain(&[("AWS_SHARED_CREDENTIALS_FILE", path(&file))]);
        let first = chain.keys().await.unwrap();
        clock.advance(SOON);
        assert!(Arc::ptr_eq(&first, &chain.keys().await.unwrap()), "nothing changed");
        home.write("keys", "[default]\naws_access_key_id=two\naws_secret_access_key=s\n");
        assert_eq!(access_key_of(&chain).await, "one", "it is not looked at for each request");
        clock.advance(SOON);
        assert_eq!(access_key_of(&chain).await, "two");
        // While somebody writes it, the last keys are used.
        home.write("keys", "[default]\naws_access_key_id=thr");
        clock.advance(SOON);
        assert_eq!(access_key_of(&chain).await, "two");
        home.write("keys", "[default]\naws_access_key_id=three\naws_secret_access_key=s\n");
        clock.advance(Duration::from_secs(11));
        assert_eq!(access_key_of(&chain).await, "three");
    });
}

#[test]
fn a_profile_has_region_endpoints_and_keys_in_either_file() {
    run(async {
        let (home, _) = Home::at_rest();
        home.write(
            ".aws/config",
            "[profile two]\nregion = eu-north-1\naws_access_key_id = of-config\naws_secret_access_key = s\nendpoint_url = \
             http://all:1\nservices = here\n[services here]\ns3 =\n  endpoint_url = http://s3:2\n[profile role]\nrole_arn = \
             arn:x\nsource_profile = two\n",
        );
        let load = |name| Profile::load(&home.env, &home.variables(&[]), name);
        let two = load(Some("two")).unwrap();
        assert_eq!(
            (two.get("region"), two.endpoint("s3"), two.endpoint("sts")),
            (Some("eu-north-1"), Some("http://s3:2"), Some("http://all:1"))
        );
        assert_eq!(load(None).unwrap().get("region"), None);
        assert_eq!(access_key_of(&home.chain_as(Some("two"), &[])).await, "of-config");
        let said = error_of(&home.chain_as(Some("role"), &[])).await;
        assert!(said.contains("role_arn") && said.contains("export-credentials --profile role"), "{said}");
    });
}

#[test]
fn a_process_is_run_again_before_its_keys_end() {
    run(async {
        let (giver, _, _) = Giver::start().await;
        let home = Home::new(Arc::clone(&giver.clock));
        let runs = home.folder.path().join("runs");
        let answer = home.folder.path().join("answer");
        let give = |number: usize| {
            let end = margay_s3::iso_time(margay_env::Timestamp(
                margay_env::Clock::now(&*giver.clock).0 + VALID.as_nanos() as i64,
            ));
            let json = format!(
                r#"{{"Version":1,"AccessKeyId":"process-{number}","SecretAccessKey":"s","SessionToken":"t","Expiration":"{end}"}}"#
            );
            fs::write(&answer, json).unwrap();
        };
        home.write(
            ".aws/config",
            &format!("[default]\ncredential_process = echo x >> '{}'; cat \"{}\"\n", runs.display(), answer.display()),
        );
        let count = || fs::read_to_string(&runs).unwrap().lines().count();
        let chain = home.chain(&[]);
        give(1);
        assert_eq!(keys_of(&chain).await, ("process-1".to_owned(), Some("t".to_owned())));
        giver.clock.advance(VALID / 2);
        assert_eq!((access_key_of(&chain).await.as_str(), count()), ("process-1", 1));
        // Shortly before the end: it fails, and the keys that are valid are used; not each request tries again.
        fs::write(&answer, "no").unwrap();
        giver.clock.advance(VALID / 2 - Duration::from_secs(200));
        for _ in 0..3 {
            assert_eq!(access_key_of(&chain).await, "process-1");
        }
        assert_eq!(count(), 2);
        give(2);
        giver.clock.advance(Duration::from_secs(20));
        assert_eq!((access_key_of(&chain).await.as_str(), count()), ("process-2", 3));
        // After the end there are no keys any more.
        fs::write(&answer, "no").unwrap();
        giver.clock.advance(VALID);
        assert!(error_of(&chain).await.contains("credential_process of the profile default printed"));
        give(3);
        giver.clock.advance(SOON);
        assert_eq!(access_key_of(&chain).await, "process-3");
        home.write(".aws/config", "[default]\ncredential_process = exit 7\n");
        assert!(error_of(&home.chain(&[])).await.contains("exit status: 7"));
    });
}

#[test]
fn a_web_identity_is_exchanged_for_keys() {
    run(async {
        let (giver, url, _) = Giver::start().await;
        let home = Home::new(Arc::clone(&giver.clock));
        let token = home.write("token", "good/token\n");
        let pairs = [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", path(&token)),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("AWS_ENDPOINT_URL_STS", url.as_str()),
        ];
        let chain = home.chain(&pairs);
        assert_eq!(keys_of(&chain).await, ("web-1".to_owned(), Some("token-1".to_owned())));
        giver.clock.advance(VALID - Duration::from_secs(100));
        assert_eq!(access_key_of(&chain).await, "web-2");
        // The file is read each time.
        home.write("token", "bad");
        giver.clock.advance(VALID);
        let said = error_of(&chain).await;
        assert!(said.contains("400 InvalidIdentityToken No") && said.contains(&url), "{said}");
        home.write("token", "good/token");
        let profile = format!(
            "[profile web]\nweb_identity_token_file = {}\nrole_arn = arn:aws:iam::1:role/r\nservices = s\n[services s]\nsts =\n  endpoint_url = {url}\n",
            token.display()
        );
        home.write(".aws/config", &profile);
        assert_eq!(access_key_of(&home.chain_as(Some("web"), &ENVIRONMENT)).await, "web-3");
    });
}

#[test]
fn a_container_s_server_is_asked_with_its_authorization() {
    run(async {
        let (giver, url, _) = Giver::start().await;
        let home = Home::new(Arc::clone(&giver.clock));
        let token = home.write("token", "Bearer one\n");
        let full = format!("{url}/container");
        let uri = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", full.as_str());
        let chain = home.chain(&[uri, ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path(&token))]);
        assert_eq!(keys_of(&chain).await, ("container-1".to_owned(), Some("token-1".to_owned())));
        let direct = home.chain(&[uri, ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer one")]);
        assert_eq!(access_key_of(&direct).await, "container-2");
        assert!(error_of(&home.chain(&[uri])).await.contains("it answered 401"));
        let far = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://far.example/keys");
        assert!(error_of(&home.chain(&[far])).await.contains("plain http"));
    });
}

#[test]
fn the_metadata_of_a_machine_is_asked_with_a_session_and_before_the_keys_end() {
    run(async {
        let (giver, url, _) = Giver::start().await;
        let home = Home::new(Arc::clone(&giver.clock));
        let pairs = [("AWS_EC2_METADATA_DISABLED", "false"), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.as_str())];
        let chain = home.chain(&pairs);
        let all: Vec<_> = (0..64)
            .map(|_| chain.clone())
            .map(|chain| tokio::spawn(async move { access_key_of(&chain).await }))
            .collect();
        for one in all {
            assert_eq!(one.await.unwrap(), "machine-1");
        }
        assert_eq!(giver.given(), 1, "one asks for all");
        giver.clock.advance(VALID - Duration::from_secs(250));
        giver.is_down.store(true, Ordering::SeqCst);
        assert_eq!(access_key_of(&chain).await, "machine-1", "they are valid still");
        giver.is_down.store(false, Ordering::SeqCst);
        giver.clock.advance(Duration::from_secs(20));
        assert_eq!(keys_of(&chain).await, ("machine-2".to_owned(), Some("token-2".to_owned())));
        giver.is_down.store(true, Ordering::SeqCst);
        giver.clock.advance(VALID);
        assert!(error_of(&chain).await.contains("it answered 503"));
        assert!(error_of(&home.chain(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)])).await.contains("DISABLED"));
    });
}

/// A store with the keys of this chain.
fn store(target: &Target, keys: KeyChain) -> Upstream {
    let address = format!("{}:{}", target.host, target.port).parse().unwrap();
    let target = Target { credentials: keys, ..target.at(address) };
    Upstream::new(Arc::new(target), "far", Limits::default())
}

#[test]
fn keys_that_a_store_refuses_are_renewed_once() {
    run(async {
        let (giver, url, target) = Giver::start().await;
        let home = Home::new(Arc::clone(&giver.clock));
        let pairs = [("AWS_EC2_METADATA_DISABLED", "false"), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.as_str())];
        let upstream = store(&target, home.chain(&pairs));
        let takes = |number: usize| {
            *giver.taken.lock().unwrap() = (format!("machine-{number}"), Some(format!("token-{number}")))
        };
        takes(1);
        upstream.delete("k").await.unwrap();
        assert_eq!((giver.given(), giver.requests.load(Ordering::SeqCst)), (1, 1));
        // The keys are valid by the clock, but the store knows better.
        *giver.refusal.lock().unwrap() = (400, "ExpiredToken");
        takes(2);
        upstream.delete("k").await.unwrap();
        assert_eq!((giver.given(), giver.requests.load(Ordering::SeqCst)), (2, 3));
        // A store that takes none of them does not make us ask for each request.
        takes(100);
        for _ in 0..5 {
            assert_eq!(upstream.delete("k").await.unwrap_err().status(), Some(400));
        }
        assert_eq!(giver.given(), 2);
        giver.clock.advance(Duration::from_secs(11));
        assert!(upstream.delete("k").await.is_err());
        assert_eq!(giver.given(), 3);
        // The answer to a HEAD does not say why.
        *giver.refusal.lock().unwrap() = (403, "InvalidAccessKeyId");
        takes(4);
        giver.clock.advance(Duration::from_secs(11));
        assert!(
            upstream.describe("k").await.is_err_and(|error| error.status().is_none()),
            "only the length is missing"
        );
        // Another refusal has nothing to do with keys.
        giver.clock.advance(Duration::from_secs(11));
        takes(5);
        *giver.refusal.lock().unwrap() = (403, "AccessDenied");
        assert_eq!(upstream.delete("k").await.unwrap_err().status(), Some(403));
        assert_eq!(giver.given(), 4);
    });
}

#[test]
fn new_keys_in_a_file_are_taken_as_soon_as_the_old_ones_are_refused() {
    run(async {
        let (giver, _, target) = Giver::start().await;
        let home = Home::new(Arc::clone(&giver.clock));
        let write = |name: &str| {
            home.write(".aws/credentials", &format!("[default]\naws_access_key_id={name}\naws_secret_access_key=s\n"));
        };
        write("old");
        "old".clone_into(&mut giver.taken.lock().unwrap().0);
        let upstream = store(&target, home.chain(&[]));
        upstream.delete("k").await.unwrap();
        write("new");
        "new".clone_into(&mut giver.taken.lock().unwrap().0);
        upstream.delete("k").await.unwrap();
    });
}
