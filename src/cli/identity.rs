//! `margay user`, `group`, `role`, `key` and `policy`: managing identities.
//!
//! Why:        orders go to the running server, or are executed here when none runs.
//! Not here:   what an order does (margay-accounts).

use std::path::{Path, PathBuf};

use clap::Subcommand;
use http::Method;
use margay_accounts::identities::{Identities, NotOrdered, ORDER_PATH, Wanted, WantedUser};
use margay_env::Env;
use margay_env::files;
use serde_json::{Value, json};

use super::reach::AdminArgs;
use super::tables;
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
  margay user list --endpoint https://s3.example.org        of a server on another machine

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
  margay policy may ann s3:GetObject photos/cat.jpg         may ann do this, and why not?
  margay policy may role/backup s3:PutObject backups/x --source-ip 192.0.2.7
  margay policy may '*' s3:ListBucket photos                whoever does not sign

A policy is JSON as AWS has it for identities; see docs/access.md. A name without an account is one of the account of root.";

#[derive(Debug, clap::Args)]
struct OrderArgs {
    #[command(flatten)]
    admin: AdminArgs,
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
    /// Say whether somebody may do something, and why (not); the running server decides, nothing is done
    May(May),
}

#[derive(Clone, Debug, clap::Args)]
struct May {
    /// A user, role/NAME, an ARN, an access key, or * for whoever does not sign
    who: String,
    /// As policies name it: s3:GetObject, iam:GetUser, admin:Status
    action: String,
    /// BUCKET, BUCKET/KEY or an ARN
    resource: String,
    /// Where the request would come from [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    source_ip: Option<String>,
    /// The prefix of a listing
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
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
        PolicyWhat::May(may) => return run_may(&args.order, &may),
    };
    run(&args.order, wanted)
}

fn run_may(order: &OrderArgs, may: &May) -> Result<(), Failure> {
    let (settings, reach) = order.admin.reach()?;
    let mut wish = json!({ "who": may.who, "questions": [{ "action": may.action, "resource": may.resource }] });
    for (name, value) in [("source_ip", &may.source_ip), ("prefix", &may.prefix)] {
        if let Some(value) = value {
            wish[name] = json!(value);
        }
    }
    let answer = super::runtime(1)?.block_on(reach.ask(&settings, Method::POST, "/simulate", Some(&wish)))?;
    let answer = answer.ok_or_else(|| super::trace::no_server(&settings))?;
    if order.json {
        println!("{answer:#}");
        return Ok(());
    }
    let verdict = &answer["verdicts"][0];
    let word = if verdict["allowed"] == true { "allowed" } else { "denied" };
    println!("{word}: {}", tables::printable(verdict["because"].as_str().unwrap_or_default()));
    Ok(())
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

/// As a running server's answer ends a command.
fn not_ordered(error: NotOrdered) -> Failure {
    match error {
        NotOrdered::Wrong(text) => Failure::usage(text),
        NotOrdered::Absent(text)
        | NotOrdered::Clash(text)
        | NotOrdered::Unanswered(text)
        | NotOrdered::Failed(text) => Failure::failed(text),
    }
}

/// Sends the order to the running server, or executes it here; prints the answer.
fn run(order: &OrderArgs, wanted: Wanted) -> Result<(), Failure> {
    let env = Env::real();
    let (settings, reach) = order.admin.reach()?;
    if matches!(wanted, Wanted::CreateUser(_) | Wanted::CreateKey { .. } | Wanted::RotateKey { .. }) {
        reach.warn_of_secrets();
    }
    let columns = columns(&wanted);
    let answer = super::runtime(settings.storage.io_threads_max)?.block_on(async {
        let order = serde_json::to_value(&wanted).expect("an order has texts and flags only");
        if let Some(answer) = reach.ask(&settings, Method::POST, ORDER_PATH, Some(&order)).await? {
            return Ok(answer);
        }
        let storage = super::works::open_at_rest(&env, &settings)?;
        let identities = Identities::open(&env, &settings.data, &storage.volume, None).await?;
        let answer = identities.answer(wanted).await.map_err(not_ordered)?;
        storage.close()?;
        Ok::<Value, Failure>(answer)
    })?;
    if order.json {
        println!("{answer:#}");
    } else {
        show(&answer, columns);
    }
    Ok(())
}

/// What the table of a list shows: the name of each column, and the field.
type Columns = &'static [(&'static str, &'static str)];

fn columns(wanted: &Wanted) -> Columns {
    match wanted {
        Wanted::ListUsers => &[
            ("USER", "user"),
            ("ACCOUNT", "account_id"),
            ("OWN", "account"),
            ("DISABLED", "disabled"),
            ("GROUPS", "groups"),
            ("POLICIES", "policies"),
            ("KEYS", "access_keys"),
        ],
        Wanted::ListGroups => &[("GROUP", "group"), ("ACCOUNT", "account_id"), ("POLICIES", "policies")],
        Wanted::ListRoles => &[("ROLE", "role"), ("POLICIES", "policies"), ("ARN", "arn")],
        Wanted::ListPolicies => &[("POLICY", "policy"), ("ACCOUNT", "account_id")],
        Wanted::ListKeys { .. } => {
            &[("ACCESS KEY", "access_key"), ("USER", "user"), ("CREATED", "created"), ("DISABLED", "disabled")]
        }
        _ => &[],
    }
}

/// A list is a table, a document is JSON, and of anything else each value has a line.
fn show(answer: &Value, columns: Columns) {
    match answer {
        Value::Array(items) => {
            let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
            let row = |item: &Value| columns.iter().map(|(_, field)| tables::shown(field, &item[*field])).collect();
            let rows: Vec<Vec<String>> = items.iter().map(row).collect();
            print!("{}", tables::table(&heads, &rows));
        }
        Value::Object(fields) if fields.contains_key("done") => println!("done"),
        Value::Object(fields) if fields.contains_key("Statement") => println!("{answer:#}"),
        other => super::status::show("", other),
    }
}
