//! `margay user`, `group`, `role`, `key` and `policy`: managing identities.
//!
//! Why:        orders go to the running server, or are executed here when none runs.
//! Not here:   what an order does (margay-accounts).

use std::path::{Path, PathBuf};

use clap::Subcommand;
use http::Method;
use margay_accounts::identities::{Identities, ORDER_PATH, Wanted, WantedUser};
use margay_env::Env;
use margay_env::files;
use serde_json::Value;

use super::arguments::DataArgs;
use crate::control;
use crate::exit::Failure;

/// Maximum size of a policy's file, in bytes.
const POLICY_FILE_BYTES_MAX: u64 = 20 * 1024;

const USER_EXAMPLES: &str = "Examples:
  margay user create ann                        a user of the account of root, without rights until a policy is attached
  margay user create shop --account             an account of its own, which owns the buckets that it makes
  margay user create till --of shop             a user of that account
  margay user disable ann
  margay user disable 123456789012/ann         when several accounts have an ann: the account's id and the name
  margay user list --json

Creating a user also makes its first access key and prints it, once.";

const GROUP_EXAMPLES: &str = "Examples:
  margay group create readers
  margay policy attach read-photos --group readers
  margay group join readers ann";

const ROLE_EXAMPLES: &str = "Examples:
  margay role create backup --trust trust.json
  margay policy attach write-backups --role backup
  margay role list

Who may take a role is said by its trust policy; see docs/access.md.";

const KEY_EXAMPLES: &str = "Examples:
  margay key create ann
  margay key list ann
  margay key rotate AKIAEXAMPLE
  margay key disable AKIAEXAMPLE

A secret is printed when it is made and never again.";

const POLICY_EXAMPLES: &str = "Examples:
  margay policy put read-photos --file read-photos.json
  margay policy attach read-photos --user ann
  margay policy attach arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess --user ann
  margay policy list
  margay policy get read-photos

A policy is JSON as AWS has it for identities; see docs/access.md. A name without an account is one of the account of root.";

#[derive(Debug, clap::Args)]
struct OrderArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = USER_EXAMPLES)]
pub(super) struct User {
    #[command(flatten)]
    order: OrderArgs,
    #[command(subcommand)]
    what: UserWhat,
}

#[derive(Clone, Debug, Subcommand)]
enum UserWhat {
    /// Create a user and its first access key
    Create {
        #[command(flatten)]
        user: WantedUser,
        /// A file that holds its secret; `-` is standard input
        #[arg(long, value_name = "FILE", requires = "access_key")]
        secret_file: Option<PathBuf>,
    },
    /// Delete a user with its access keys
    Delete { name: String },
    /// Enable a disabled user
    Enable { name: String },
    /// Disable a user until it is enabled again
    Disable { name: String },
    /// Show all users
    List,
}

#[derive(Debug, clap::Args)]
#[command(after_help = GROUP_EXAMPLES)]
pub(super) struct Group {
    #[command(flatten)]
    order: OrderArgs,
    #[command(subcommand)]
    what: GroupWhat,
}

#[derive(Clone, Debug, Subcommand)]
enum GroupWhat {
    /// Create a group
    Create {
        name: String,
        /// The user whose account it belongs to [default: the account of root]
        #[arg(long, value_name = "USER")]
        of: Option<String>,
    },
    /// Delete a group without users
    Delete { name: String },
    /// Add a user to a group
    Join { group: String, user: String },
    /// Remove a user from a group
    Leave { group: String, user: String },
    /// Show all groups
    List,
}

#[derive(Debug, clap::Args)]
#[command(after_help = ROLE_EXAMPLES)]
pub(super) struct Role {
    #[command(flatten)]
    order: OrderArgs,
    #[command(subcommand)]
    what: RoleWhat,
}

#[derive(Clone, Debug, Subcommand)]
enum RoleWhat {
    /// Create a role
    Create {
        name: String,
        /// File of the trust policy, which says who may assume the role
        #[arg(long, value_name = "FILE")]
        trust: PathBuf,
        /// The user whose account it belongs to [default: the account of root]
        #[arg(long, value_name = "USER")]
        of: Option<String>,
    },
    /// Delete a role; its sessions end
    Delete { name: String },
    /// Show all roles
    List,
}

#[derive(Debug, clap::Args)]
#[command(after_help = KEY_EXAMPLES)]
pub(super) struct Key {
    #[command(flatten)]
    order: OrderArgs,
    #[command(subcommand)]
    what: KeyWhat,
}

#[derive(Clone, Debug, Subcommand)]
enum KeyWhat {
    /// Create another access key for a user
    Create {
        user: String,
        /// The access key [default: random]
        #[arg(long, value_name = "KEY")]
        access_key: Option<String>,
        /// A file that holds its secret; `-` is standard input
        #[arg(long, value_name = "FILE", requires = "access_key")]
        secret_file: Option<PathBuf>,
    },
    /// Delete an access key
    Delete { access_key: String },
    /// Enable a disabled access key
    Enable { access_key: String },
    /// Disable an access key until it is enabled again
    Disable { access_key: String },
    /// Replace an access key by a new one
    Rotate { access_key: String },
    /// Show access keys, without secrets
    List { user: Option<String> },
}

#[derive(Debug, clap::Args)]
#[command(after_help = POLICY_EXAMPLES)]
pub(super) struct Policy {
    #[command(flatten)]
    order: OrderArgs,
    #[command(subcommand)]
    what: PolicyWhat,
}

#[derive(Clone, Debug, Subcommand)]
enum PolicyWhat {
    /// Create or replace a policy
    Put {
        name: String,
        /// File of JSON
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Show a policy
    Get { name: String },
    /// Delete a policy that is not attached
    Delete { name: String },
    /// Attach a policy to a user, group or role
    Attach {
        name: String,
        #[command(flatten)]
        to: Holder,
    },
    /// Detach a policy
    Detach {
        name: String,
        #[command(flatten)]
        from: Holder,
    },
    /// Show all policies
    List,
}

#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Holder {
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
}

pub(super) fn run_user(args: &User) -> Result<(), Failure> {
    let wanted = match args.what.clone() {
        UserWhat::Create { user, secret_file } => {
            Wanted::CreateUser(WantedUser { secret_key: secret(secret_file.as_ref())?, ..user })
        }
        UserWhat::Delete { name } => Wanted::DeleteUser { name },
        UserWhat::Enable { name } => Wanted::EnableUser { name },
        UserWhat::Disable { name } => Wanted::DisableUser { name },
        UserWhat::List => Wanted::ListUsers,
    };
    run(&args.order, wanted)
}

pub(super) fn run_group(args: &Group) -> Result<(), Failure> {
    let wanted = match args.what.clone() {
        GroupWhat::Create { name, of } => Wanted::CreateGroup { name, of },
        GroupWhat::Delete { name } => Wanted::DeleteGroup { name },
        GroupWhat::Join { group, user } => Wanted::JoinGroup { user, group },
        GroupWhat::Leave { group, user } => Wanted::LeaveGroup { user, group },
        GroupWhat::List => Wanted::ListGroups,
    };
    run(&args.order, wanted)
}

pub(super) fn run_role(args: &Role) -> Result<(), Failure> {
    let wanted = match args.what.clone() {
        RoleWhat::Create { name, trust, of } => Wanted::CreateRole { name, of, trust: text(&trust)? },
        RoleWhat::Delete { name } => Wanted::DeleteRole { name },
        RoleWhat::List => Wanted::ListRoles,
    };
    run(&args.order, wanted)
}

pub(super) fn run_key(args: &Key) -> Result<(), Failure> {
    let wanted = match args.what.clone() {
        KeyWhat::Create { user, access_key, secret_file } => {
            Wanted::CreateKey { user, access_key, secret_key: secret(secret_file.as_ref())? }
        }
        KeyWhat::Delete { access_key } => Wanted::DeleteKey { access_key },
        KeyWhat::Enable { access_key } => Wanted::EnableKey { access_key },
        KeyWhat::Disable { access_key } => Wanted::DisableKey { access_key },
        KeyWhat::Rotate { access_key } => Wanted::RotateKey { access_key },
        KeyWhat::List { user } => Wanted::ListKeys { user },
    };
    run(&args.order, wanted)
}

pub(super) fn run_policy(args: &Policy) -> Result<(), Failure> {
    let wanted = match args.what.clone() {
        PolicyWhat::Put { name, file } => Wanted::PutPolicy { name, document: text(&file)? },
        PolicyWhat::Get { name } => Wanted::GetPolicy { name },
        PolicyWhat::Delete { name } => Wanted::DeletePolicy { name },
        PolicyWhat::Attach { name, to: Holder { user, group, role } } => {
            Wanted::Attach { policy: name, user, group, role }
        }
        PolicyWhat::Detach { name, from: Holder { user, group, role } } => {
            Wanted::Detach { policy: name, user, group, role }
        }
        PolicyWhat::List => Wanted::ListPolicies,
    };
    run(&args.order, wanted)
}

/// The content of a file; `-` is standard input.
fn text(path: &Path) -> Result<String, Failure> {
    let fail = |error: &std::io::Error| {
        Failure::usage(format!("{} cannot be read: {error}; {}", path.display(), files::remedy(error)))
    };
    if path.as_os_str() == "-" {
        return std::io::read_to_string(std::io::stdin()).map_err(|error| fail(&error));
    }
    let bytes = files::read(&Env::real(), path, POLICY_FILE_BYTES_MAX).map_err(|error| fail(&error))?;
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{} is not UTF-8 text", path.display())))
}

fn secret(path: Option<&PathBuf>) -> Result<Option<String>, Failure> {
    path.map(|path| Ok(text(path)?.trim().to_owned())).transpose()
}

/// Sends the order to the running server, or executes it here; prints the answer.
fn run(order: &OrderArgs, wanted: Wanted) -> Result<(), Failure> {
    let env = Env::real();
    let settings = order.data.settings(&env)?;
    let answer = super::runtime(settings.storage.io_threads_max)?.block_on(async {
        let order = serde_json::to_value(&wanted).expect("an order has texts and flags only");
        if let Some(answer) = control::ask_with(&settings.data, Method::POST, ORDER_PATH, Some(&order)).await? {
            return Ok(answer);
        }
        let storage = super::works::open_at_rest(&env, &settings)?;
        let identities = Identities::open(&env, &settings.data, &storage.volume, None).await?;
        let answer = identities.answer(wanted).await.map_err(Failure::failed)?;
        storage.close()?;
        Ok::<Value, Failure>(answer)
    })?;
    if order.json {
        println!("{answer:#}");
    } else {
        show(&answer);
    }
    Ok(())
}

/// One line per value; a list is a block per item.
fn show(answer: &Value) {
    match answer {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    println!();
                }
                super::status::show("", item);
            }
        }
        Value::Object(fields) if fields.contains_key("done") => println!("done"),
        Value::Object(fields) if fields.contains_key("Statement") => println!("{answer:#}"),
        other => super::status::show("", other),
    }
}
