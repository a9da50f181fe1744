//! Results of a command: an exit code for scripts and one line for people.
//!
//! Why:        every failure says in one line on stderr what happened and what to do next.
//! Invariants: X1 the codes below never change their meaning.

use std::fmt;
use std::path::Path;

use margay_accounts::AccountsError;
use margay_listener::{BindError, TlsError};

/// Exit codes for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The command failed during its work.
    Failed = 1,
    /// The command line, a setting or a settings file is wrong; nothing was done.
    Usage = 2,
    /// The data directory is in use, foreign, of a newer format or has other keys, an address is in use, or nobody
    /// answers there; nothing was done.
    Refused = 3,
    /// The command worked and found damage (fsck, scrub), or a goal was missed (bench --check).
    Found = 4,
    /// Ctrl-C.
    Interrupted = 130,
}

/// The table for `--help`.
pub const CODES_HELP: &str = "Exit codes:\n  0  done\n  1  failed on the way\n  2  wrong command line or settings; nothing was done\n  \
     3  refused: directory locked, foreign or newer, other keys, address taken, or no server there; nothing was done\n  \
     4  damage found, or a goal missed (bench --check)\n  130  Ctrl-C";

/// A failure of the whole command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { code: Code::Failed, message: message.into() }
    }
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: Code::Usage, message: message.into() }
    }
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure { code: Code::Refused, message: message.into() }
    }
    /// No server has the data directory open.
    pub fn no_server(data: &Path) -> Failure {
        let data = data.display();
        Failure::refused(format!("no server runs on {data}; start one with: margay serve --data {data}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Failure {
        Failure::refused(error.to_string())
    }
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Failure {
        // A file that settings name: to start again would not help.
        Failure::usage(error.to_string())
    }
}

impl From<AccountsError> for Failure {
    fn from(error: AccountsError) -> Failure {
        let message = error.to_string();
        match error {
            AccountsError::Environment(_) => Failure::usage(message),
            AccountsError::Refused(_) => Failure::refused(message),
            AccountsError::File(_) | AccountsError::Volume(_) | AccountsError::Fingerprint(_) => {
                Failure::failed(message)
            }
        }
    }
}
