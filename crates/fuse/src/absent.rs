//! How long the kernel may cache that a name does not exist (a negative dentry).
//!
//! Why:        a file that S3 creates must be visible in a mount at once, so the kernel is told to drop the cached
//!             name. Some kernels (Linux 6.19 and newer, as reported) keep negative entries all the same, so each mount
//!             probes.
//! Invariants: B1 until the probe has shown that the kernel drops negative entries, it may cache none
//!                (`a_kernel_that_forgets_may_keep_them_and_no_other`).
//!             B2 no file can have the probe's name: it looks like an escape, but is none that `names` knows
//!                (`nothing_can_have_the_name_that_is_tried`).
//! Not here:   sending invalidations (notifier).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::protocol::{Kernel, Node, ROOT};

/// The name that the probe looks up.
pub(crate) const TRIED: &str = "@{tried}";
/// Cache time once the probe has succeeded. Short, because after an overflow of the notice queue an invalidation cannot
/// name the absent names of the root.
pub const KEEP_ABSENT_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct AbsentNames {
    /// The kernel drops a negative entry when told to.
    forgotten: AtomicBool,
    /// How many lookups of the probe's name have arrived.
    asked: AtomicU64,
}

impl AbsentNames {
    /// Called for a lookup of a name that does not exist; returns how long the kernel may cache that answer.
    pub(crate) fn keep_time(&self, parent: Node, name: &[u8]) -> Duration {
        let tried = parent == ROOT && name == TRIED.as_bytes();
        if tried {
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
        if tried || self.forgotten.load(Ordering::SeqCst) { KEEP_ABSENT_TIME_MAX } else { Duration::ZERO }
    }

    /// Probes the kernel. `look` makes the kernel look up the name in the mount's root; the session already answers
    /// requests.
    pub(crate) fn try_kernel(&self, kernel: &dyn Kernel, look: &dyn Fn(&str) -> io::Result<()>) {
        let asked = |what: &dyn Fn() -> io::Result<()>| -> io::Result<bool> {
            let before = self.asked.load(Ordering::SeqCst);
            what()?;
            Ok(self.asked.load(Ordering::SeqCst) > before)
        };
        let tried = || -> io::Result<bool> {
            look(TRIED)?;
            kernel.forget_name(ROOT, TRIED.as_bytes());
            asked(&|| look(TRIED))
        };
        match tried() {
            Ok(true) => self.forgotten.store(true, Ordering::SeqCst),
            Ok(false) => tracing::info!(
                "this kernel keeps names that do not exist although it is told to forget them, so it is asked to keep none"
            ),
            Err(error) => tracing::warn!(
                %error,
                "whether the kernel forgets names that do not exist cannot be tried, so it is asked to keep none"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::protocol::Answer;

    /// A kernel and the names that exist in a root behind it.
    #[derive(Debug, Default)]
    struct Played {
        names: AbsentNames,
        there: Mutex<HashSet<String>>,
        absent: Mutex<HashSet<String>>,
        keeps: bool,
    }

    impl Played {
        fn new(keeps: bool) -> Arc<Played> {
            Arc::new(Played { keeps, ..Played::default() })
        }

        fn exists(&self, name: &str) -> bool {
            if self.absent.lock().contains(name) {
                return false;
            }
            let exists = self.there.lock().contains(name);
            if !exists && self.names.keep_time(ROOT, name.as_bytes()) > Duration::ZERO {
                self.absent.lock().insert(name.to_owned());
            }
            exists
        }

        fn tried(&self, kernel: &dyn Kernel) {
            self.names.try_kernel(kernel, &|name| {
                self.exists(name);
                Ok(())
            });
        }

        /// Another door creates the file and notifies the kernel.
        fn made(&self, kernel: &dyn Kernel, name: &str) {
            self.there.lock().insert(name.to_owned());
            kernel.forget_name(ROOT, name.as_bytes());
        }
    }

    impl Kernel for Arc<Played> {
        fn forget_name(&self, _: Node, name: &[u8]) {
            if !self.keeps {
                self.absent.lock().remove(std::str::from_utf8(name).unwrap());
            }
        }
        fn forget_file(&self, _: Node, _: bool) {}
        fn prune(&self, _: &[Node]) -> Answer<()> {
            Ok(())
        }
    }

    #[test]
    fn what_another_door_makes_is_seen_at_once_by_every_kernel() {
        for keeps in [false, true] {
            let played = Played::new(keeps);
            assert!(!played.exists("before it is tried"));
            played.tried(&played);
            for name in ["before it is tried", "after it"] {
                assert!(!played.exists(name));
                played.made(&played, name);
                assert!(played.exists(name), "{name}, a kernel that keeps absent names: {keeps}");
            }
        }
    }

    #[test]
    fn a_kernel_that_forgets_may_keep_them_and_no_other() {
        let forgets = Played::new(false);
        assert_eq!(forgets.names.keep_time(ROOT, b"a"), Duration::ZERO);
        forgets.tried(&forgets);
        assert_eq!(forgets.names.keep_time(ROOT, b"a"), KEEP_ABSENT_TIME_MAX);
        let keeps = Played::new(true);
        keeps.tried(&keeps);
        assert_eq!(keeps.names.keep_time(ROOT, b"a"), Duration::ZERO);
        let closed = Played::new(false);
        closed.names.try_kernel(&closed, &|_| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(closed.names.keep_time(ROOT, b"a"), Duration::ZERO);
    }

    #[test]
    fn nothing_can_have_the_name_that_is_tried() {
        assert!(crate::names::stored(TRIED.as_bytes()).is_err());
    }
}
