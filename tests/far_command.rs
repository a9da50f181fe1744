//! The commands around a far mount: where its keys come from, what is refused, and what is said.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use server::{Server, ends, margay};

/// For what happens soon; a machine that is busy may need long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with an account that has two access keys, and a home directory.
struct World {
    server: Server,
    folder: tempfile::TempDir,
    keys: [(String, String); 2],
}

/// A mount that a command left behind; unmounted at the end.
struct Mounted<'w> {
    path: PathBuf,
    _world: &'w World,
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Gone already unless the test failed.
        let _ = Command::new("umount").arg("-l").arg(&self.path).stderr(Stdio::null()).status();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        // Also knows BUCKET.localhost.
        let server = Server::start_with(&folder.path().join("data"), &["--domain", "localhost"]);
        let data = server.data.to_str().unwrap().to_owned();
        let keys = [["user", "create", "shop", "--account"].as_slice(), &["key", "create", "shop"]].map(|words| {
            let made = ends(0, &[words, &["--json", "--data", &data]].concat());
            let made: serde_json::Value = serde_json::from_str(&made).unwrap();
            let text = |name: &str| made[name].as_str().unwrap().to_owned();
            (text("access_key"), text("secret_key"))
        });
        fs::create_dir_all(folder.path().join("home/.aws")).unwrap();
        let world = World { server, folder, keys };
        let made = world.client(&["mb", "s3://bucket"]).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Without keys: those are in the home directory, or nowhere.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = margay();
        command.env("HOME", self.path("home")).env_remove("XDG_CACHE_HOME").env("AWS_EC2_METADATA_DISABLED", "true");
        command.args(arguments);
        command
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let (access_key, secret_key) = &self.keys[1];
        let mut command = self.command(&["client", "--endpoint", &self.server.endpoint]);
        command.env("MARGAY_ACCESS_KEY", access_key).env("MARGAY_SECRET_KEY", secret_key).args(arguments);
        command
    }

    fn write_keys(&self, section: &str, (access_key, secret_key): &(String, String)) {
        let text = format!("[{section}]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n");
        fs::write(self.path("home/.aws/credentials"), text).unwrap();
    }

    fn far(&self, words: &[&str], cache: &str) -> Command {
        let mut command = self.command(words);
        command.arg("--cache").arg(self.path(cache)).args(["--endpoint", &self.server.endpoint]);
        command
    }

    /// Mounts in the background.
    fn mount(&self, mut command: Command) -> Mounted<'_> {
        let path = self.path("mount");
        let done = command.arg(&path).output().unwrap();
        assert!(done.status.success(), "{}", said(&done));
        Mounted { path, _world: self }
    }

    fn has(&self, key: &str) -> bool {
        let (folder, _) = key.rsplit_once('/').unwrap_or_default();
        let listed =
            self.client(&["ls", &format!("s3://bucket/{folder}/").replace("bucket//", "bucket/")]).output().unwrap();
        assert!(listed.status.success(), "{}", said(&listed));
        String::from_utf8_lossy(&listed.stdout).contains(key)
    }
}

fn sync(path: &Path) {
    fs::File::open(path).unwrap().sync_all().unwrap();
}

fn unmount(path: &Path) {
    let begun = Instant::now();
    while !Command::new("umount").arg(path).status().unwrap().success() {
        assert!(begun.elapsed() < PATIENCE, "it stays busy");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn keys_come_from_a_profile_and_are_replaced_while_it_is_mounted() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let mount = ["mount", "s3://bucket", "--profile", "shop"];
    let without = world.far(&mount, "cache").arg(world.path("mount")).output().unwrap();
    assert_eq!(
        (without.status.code(), said(&without).contains("no profile shop")),
        (Some(2), true),
        "{}",
        said(&without)
    );
    world.write_keys("shop", &world.keys[0]);
    let nobody = world.far(&["mount", "s3://bucket"], "cache").arg(world.path("mount")).output().unwrap();
    assert_eq!(nobody.status.code(), Some(2));
    assert!(said(&nobody).contains("no keys were found; looked at: the environment"), "{}", said(&nobody));
    let mounted = world.mount(world.far(&mount, "cache"));
    fs::write(mounted.path.join("one"), "1").unwrap();
    sync(&mounted.path);
    assert!(world.has("one"));
    // The keys of the mount end, and there are others.
    world.write_keys("shop", &world.keys[1]);
    ends(0, &["key", "disable", &world.keys[0].0, "--data", world.server.data.to_str().unwrap()]);
    fs::write(mounted.path.join("two"), "2").unwrap();
    sync(&mounted.path);
    assert!(world.has("two"));
    unmount(&mounted.path);
    let secrets = world.keys.each_ref().map(|(_, secret)| secret.clone());
    no_file_has(&world.path("cache"), &secrets);
}

#[test]
fn the_last_process_of_a_cache_is_waited_for_while_it_sends() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    world.write_keys("default", &world.keys[1]);
    let mount = ["mount", "s3://bucket"];
    let mounted = world.mount(world.far(&mount, "cache"));
    // While it is mounted, nobody waits.
    let other = world.far(&mount, "cache").arg(world.path("other")).output().unwrap();
    let told = said(&other);
    assert_eq!(other.status.code(), Some(3), "{told}");
    assert!(told.contains("is in use (process ") && told.contains("cache") && !told.contains("--data"), "{told}");
    for foreground in [false, true] {
        let mut again = world.far(&mount, "again");
        let again = again.arg(&mounted.path).args(foreground.then_some("--foreground")).output().unwrap();
        assert!(again.status.code() == Some(2) && said(&again).contains("is a mount already"), "{}", said(&again));
    }
    let at = format!("photos={}", mounted.path.display());
    let data = world.path("data-two").display().to_string();
    let served = ["serve", "--address", "127.0.0.1:0", "--admin-address", "off", "--data", &data, "--mount", &at];
    let mut served = world.command(&served).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(served.stderr.take().unwrap()).lines().map_while(Result::ok);
    let refused = lines.into_iter().find(|line| line.contains("is a mount of margay already"));
    served.kill().unwrap();
    served.wait().unwrap();
    assert!(refused.is_some(), "a server does not mount over it");
    assert_eq!(fs::read_dir(&mounted.path).unwrap().count(), 0, "what is listed needs no bucket");
    world.server.signal(Signal::STOP);
    fs::write(mounted.path.join("late"), "content").unwrap();
    unmount(&mounted.path);
    let mut command = world.far(&mount, "cache");
    let mut next = command.arg(&mounted.path).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut told = BufReader::new(next.stderr.take().unwrap());
    told.read_line(&mut line).unwrap();
    assert!(line.contains("is still in use (process ") && line.contains("waiting up to 60 s"), "{line}");
    world.server.signal(Signal::CONT);
    assert_eq!(next.wait().unwrap().code(), Some(0));
    assert!(world.has("late"));
    assert_eq!(fs::read_to_string(mounted.path.join("late")).unwrap(), "content");
    unmount(&mounted.path);
}

#[test]
fn a_mount_that_failed_leaves_no_claim_and_sync_needs_a_cache() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let absent = world.far(&["sync", "s3://bucket"], "absent").output().unwrap();
    assert_eq!(absent.status.code(), Some(2), "there are no keys");
    world.write_keys("default", &world.keys[1]);
    let absent = world.far(&["sync", "s3://bucket"], "absent").output().unwrap();
    assert_eq!(absent.status.code(), Some(3));
    assert!(said(&absent).contains("there is no cache in") && !world.path("absent").exists(), "{}", said(&absent));
    let nowhere = ["mount", "s3://elsewhere"];
    let refused = world.far(&nowhere, "cache").arg(world.path("mount")).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("there is no bucket elsewhere"), "{}", said(&refused));
    let sync = world.far(&["sync", "s3://elsewhere"], "cache").output().unwrap();
    assert_eq!(sync.status.code(), Some(3), "the cache is nobody's");
    world.write_keys("default", &(world.keys[1].0.clone(), "wrong".to_owned()));
    let refused = world.far(&["mount", "s3://bucket"], "cache").arg(world.path("mount")).output().unwrap();
    assert!(
        refused.status.code() == Some(1) && said(&refused).contains("does not take these keys"),
        "{}",
        said(&refused)
    );
    world.write_keys("default", &world.keys[1]);
    // The same endpoint in two forms.
    let endpoint = world.server.endpoint.clone();
    let mut command = world.command(&["mount", "s3://bucket/", "--endpoint"]);
    command.arg(format!("{}/", endpoint.replace("http", "HTTP"))).arg("--cache").arg(world.path("cache"));
    let mounted = world.mount(command);
    fs::write(mounted.path.join("file"), "content").unwrap();
    unmount(&mounted.path);
    let sync = world.far(&["sync", "s3://bucket"], "cache").output().unwrap();
    assert!(sync.status.success(), "{}", said(&sync));
    assert!(!said(&sync).contains('{') && sync.stdout.is_empty(), "no log lines: {}", said(&sync));
    assert!(world.has("file"));
    let other = world.far(&["mount", "s3://bucket/sub"], "cache").arg(world.path("mount")).output().unwrap();
    assert!(other.status.code() == Some(3) && said(&other).contains("is the cache of s3://bucket"), "{}", said(&other));
    let doubled = world.far(&["mount", "s3://bucket//sub"], "cache").arg(world.path("mount")).output().unwrap();
    assert!(doubled.status.code() == Some(2) && said(&doubled).contains("names that are empty"), "{}", said(&doubled));
}

/// In a mount name space of its own, where this program is /sbin/mount.margay and $WORK/fstab has a line. Everything that the
/// mount leaves must have ended when the script ends.
const FSTAB: &str = r#"
set -eu
mkdir -p "$WORK/sbin" "$WORK/far"
ln -s "$MARGAY" "$WORK/sbin/mount.margay"
mount -t overlay overlay -o "lowerdir=$WORK/sbin:/usr/sbin" /usr/sbin
mount -a -T "$WORK/fstab"
grep " $WORK/far " /proc/self/mountinfo | grep -q s3://bucket/sub
# It is known by its line, so it is not mounted again.
mount -a -T "$WORK/fstab"
[ "$(grep -c " $WORK/far " /proc/self/mountinfo)" = 1 ]
echo content >"$WORK/far/file"
sync "$WORK/far"
mv "$WORK/far/file" "$WORK/far/moved"
sync "$WORK/far"
mount -o remount,ro "$WORK/far" -T "$WORK/fstab"
! touch "$WORK/far/other" 2>/dev/null
umount "$WORK/far"
# By command line, with options that mean nothing here and one that is unknown.
mount -t margay s3://bucket/sub "$WORK/far" -o "$OPTIONS,addressing=path,defaults,noauto,async,user,rw,comment=x"
[ "$(cat "$WORK/far/moved")" = content ]
# It is not in fstab: its kind is that of the kernel.
ln -s "$MARGAY" "$WORK/sbin/mount.fuse.margay"
mount -o remount,ro "$WORK/far"
! touch "$WORK/far/other" 2>/dev/null
# As mount.fuse(8) calls the program, where no helper has the name of the kind.
"$MARGAY" s3://bucket/sub "$WORK/far" -o rw,nosuid,nodev,remount
touch "$WORK/far/moved"
umount "$WORK/far"
if mount -t margay s3://bucket/sub "$WORK/far" -o "$OPTIONS,nonsense" 2>"$WORK/said"; then exit 1; fi
grep -q nonsense "$WORK/said"
"$MARGAY" sync s3://bucket/sub --endpoint "$ENDPOINT" --cache "$WORK/cache" --profile shop
"#;

#[test]
fn mount_and_fstab_know_a_far_bucket() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    world.write_keys("shop", &world.keys[1]);
    let endpoint = world.server.endpoint.replace("127.0.0.1", "localhost");
    let work = world.folder.path().display().to_string();
    let options = format!("endpoint={endpoint},cache={work}/cache,profile=shop,region=us-east-1");
    let more = "addressing=virtual,_netdev,nofail,x-systemd.requires=network-online.target,x-systemd.mount-timeout=60";
    fs::write(world.path("fstab"), format!("s3://bucket/sub {work}/far margay {options},{more} 0 0\n")).unwrap();
    let mut script = Command::new("unshare");
    script.args(["--mount", "--propagation", "private", "sh", "-c", FSTAB]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MARGAY_") || name.starts_with("AWS_")) {
        script.env_remove(name);
    }
    let names = [
        ("WORK", work.as_str()),
        ("MARGAY", env!("CARGO_BIN_EXE_margay")),
        ("OPTIONS", &options),
        ("ENDPOINT", &endpoint),
    ];
    // mount(8) does not pass on HOME.
    let file = ("AWS_SHARED_CREDENTIALS_FILE", world.path("home/.aws/credentials"));
    let done = script.envs(names).env(file.0, file.1).env("AWS_EC2_METADATA_DISABLED", "true").output().unwrap();
    assert!(done.status.success(), "{}\n{}", done.status, said(&done));
    assert!(world.has("sub/moved") && !world.has("sub/file"));
}

/// Fails if a file below a directory holds one of these texts.
fn no_file_has(directory: &Path, texts: &[String]) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            no_file_has(&path, texts);
        } else if path.is_file() {
            // The process of the mount may be ending, and remove what it needs no more.
            let Ok(bytes) = fs::read(&path) else {
                assert!(!path.exists(), "{} cannot be read", path.display());
                continue;
            };
            for text in texts {
                let is_in = bytes.windows(text.len()).any(|window| window == text.as_bytes());
                assert!(!is_in, "{} holds a secret", path.display());
            }
        }
    }
}
