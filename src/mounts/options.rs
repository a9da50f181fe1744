//! Parses the options (`-o`) of a mount.
//!
//! Why:        the options are those of mount(8), so that an fstab line looks like any other.
//! Invariants: W1 options meant for other programs are ignored; an unknown option is an error, never a silent default.
//! Not here:   mounting (`mounts`).

use margay_fuse::{Ownership, SessionOptions};
use margay_volume::posix::Claim;

/// Options of mount(8), systemd or defaults that change nothing here.
const PASSED_OVER: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    // mount(8) itself checks who mounts, and passes on the options that these imply: noexec, nosuid, nodev.
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "_netdev",
    "nofail",
    // Reads never change an access time here (docs/posix.md).
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "default_permissions",
];
/// Ignored options with a value.
const PASSED_OVER_WITH_VALUE: &[&str] = &["x-", "X-", "comment=", "user=", "uhelper="];

/// Options of one mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountChoice {
    pub read_only: bool,
    /// Every change is durable before its call returns.
    pub sync: bool,
    pub writeback: bool,
    /// Written data is stored unencrypted, even where objects are encrypted.
    pub plain: bool,
    pub suid: bool,
    pub dev: bool,
    /// No program on the mount can be executed.
    pub no_exec: bool,
    /// Other servers may mount it to write at the same time.
    pub shared: bool,
    /// File locks count among the programs of this machine only, and are given even so.
    pub local_locks: bool,
    /// `None`: if this user may.
    pub allow_other: Option<bool>,
    pub threads: Option<usize>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Octal.
    pub umask: Option<u32>,
}

/// Threads that answer when every change waits for the disk, so that many share one sync.
const SYNC_THREADS: usize = 32;
/// Threads of a mount whose metadata, or whose bucket, is on another machine; calls that wait beyond those have threads of their own.
/// The kernel gives each request to the thread that waited longest, so with many threads each request finds a cold cache, and each
/// thread's heap keeps memory: with 64 of them `cp -r` took 15 % more processor time, more on a busy machine, and a mount grew by 400 MiB in an hour.
const WAITING_THREADS: usize = 12;
const THREADS_MAX: usize = 256;

impl MountChoice {
    /// The error names the option.
    pub fn parse(text: &str) -> Result<MountChoice, String> {
        let mut choice = MountChoice::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            choice.take(word)?;
        }
        Ok(choice)
    }

    fn take(&mut self, word: &str) -> Result<(), String> {
        match word {
            // As in mount(8), the last of contradictory options counts.
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "sync" | "dirsync" => self.sync = true,
            "async" => self.sync = false,
            "writeback" => self.writeback = true,
            "plain" => self.plain = true,
            "shared" => self.shared = true,
            "locks=local" => self.local_locks = true,
            // mount(8) treats `suid` and `dev` as defaults and does not pass them on; it does pass on the longer names.
            "suid" | "allow_suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" | "allow_dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.no_exec = false,
            "noexec" => self.no_exec = true,
            "allow_other" => self.allow_other = Some(true),
            "noallow_other" => self.allow_other = Some(false),
            word if PASSED_OVER.contains(&word) => {}
            word if PASSED_OVER_WITH_VALUE.iter().any(|known| word.starts_with(known)) => {}
            word => {
                let (name, value) = word.split_once('=').ok_or_else(|| unknown(word))?;
                match name {
                    "uid" => self.uid = Some(number(word, value, 10)?),
                    "gid" => self.gid = Some(number(word, value, 10)?),
                    "umask" => self.umask = Some(number(word, value, 8)? & 0o777),
                    "threads" => {
                        let threads = number(word, value, 10)? as usize;
                        if !(1..=THREADS_MAX).contains(&threads) {
                            return Err(format!("{word}: between 1 and {THREADS_MAX}"));
                        }
                        self.threads = Some(threads);
                    }
                    _ => return Err(unknown(word)),
                }
            }
        }
        Ok(())
    }

    pub(super) fn ownership(&self) -> Ownership {
        Ownership { uid: self.uid, gid: self.gid, umask: self.umask }
    }

    /// What it claims of its directory.
    pub(super) fn claim(&self) -> Claim {
        if self.shared { Claim::Shared } else { Claim::Alone }
    }

    /// Whether locks on a volume of several servers are those of all: where another one may write too, its programs must see them.
    pub(super) fn asks_for_locks(&self) -> bool {
        (self.read_only || self.shared) && !self.local_locks
    }

    /// `waits`: metadata comes from another machine, and a call holds its thread until then.
    pub(super) fn session(&self, source: String, known_files_max: usize, waits: bool) -> SessionOptions {
        let usual = SessionOptions::default();
        let threads = match (waits, self.sync) {
            (true, _) => WAITING_THREADS,
            (false, true) => SYNC_THREADS,
            (false, false) => usual.threads,
        };
        SessionOptions {
            source,
            read_only: self.read_only,
            allow_other: self.allow_other.unwrap_or(usual.allow_other),
            writeback: self.writeback,
            suid: self.suid,
            dev: self.dev,
            no_exec: self.no_exec,
            threads: self.threads.unwrap_or(threads),
            waits,
            is_of_several: false,
            asks_for_locks: false,
            known_files_max,
        }
    }
}

fn unknown(word: &str) -> String {
    format!(
        "{word} is no mount option; there are ro, sync, writeback, plain, shared, locks=local, uid=, gid=, umask=, threads=, allow_other, suid, dev, noexec \
         and, for mount(8), allow_suid and allow_dev"
    )
}

fn number(word: &str, value: &str, radix: u32) -> Result<u32, String> {
    u32::from_str_radix(value, radix).map_err(|_| format!("{word}: {value:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_fstab_line_are_understood() {
        let choice = MountChoice::parse("defaults,ro,uid=1000,umask=027,_netdev,x-systemd.requires=a.service").unwrap();
        assert_eq!((choice.read_only, choice.uid, choice.umask), (true, Some(1000), Some(0o27)));
        assert_eq!(MountChoice::parse("").unwrap(), MountChoice::default());
    }

    #[test]
    fn what_mount_8_says_of_every_file_system_is_understood() {
        let words = "rw,noatime,nodiratime,noexec,nosuid,nodev,user=me,relatime,X-mount.mkdir,uhelper=udisks2";
        let choice = MountChoice::parse(words).unwrap();
        assert_eq!(choice, MountChoice { no_exec: true, ..MountChoice::default() });
        let last = MountChoice::parse("ro,rw,sync,async,suid,nosuid,dev,nodev,noexec,exec").unwrap();
        assert_eq!(last, MountChoice::default());
        let all = MountChoice::parse("user,exec,allow_suid,allow_dev").unwrap();
        assert!(all.suid && all.dev && !all.no_exec);
    }

    #[test]
    fn who_may_lock_is_who_writes_alone_or_wants_no_more_than_this_machine() {
        let refuses = |words: &str| MountChoice::parse(words).unwrap().asks_for_locks();
        assert!(refuses("ro") && refuses("shared") && refuses("ro,shared"));
        assert!(!refuses("") && !refuses("ro,locks=local") && !refuses("shared,locks=local"));
        assert_eq!(MountChoice::parse("shared").unwrap().claim(), Claim::Shared);
        assert_eq!(MountChoice::default().claim(), Claim::Alone);
    }

    #[test]
    fn an_unknown_word_is_named() {
        for text in ["locks=", "locks=far", "speed", "uid=me", "umask=9", "threads=0", "colour=red"] {
            let error = MountChoice::parse(text).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
