//! `margay user`, `group`, `role`, `key` and `policy`: who may call.
//!
//! Why:        the same orders go to the running server, or are carried out here when none runs.
//! Not here:   what an order does (`identities`).

use std::path::{Path, PathBuf};

use clap::Subcommand;
use http::Method;
use margay_env::Env;
use serde_json::{Value, json};

use super::arguments::DataArgs;
use crate::control;
use crate::exit::Failure;
use crate::files;
use crate::identities::{Identities, ORDER_PATH};

/// Longest file of a policy, in bytes.
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
struct Place {
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
    place: Place,
    #[command(subcommand)]
    what: UserWhat,
}

#[derive(Debug, Subcommand)]
enum UserWhat {
    /// Make a user and its first access key
    Create {
        name: String,
        /// The user is an account of its own
        #[arg(long)]
        account: bool,
        /// The id of the account, twelve digits [default: random]
        #[arg(long, value_name = "DIGITS", requires = "account")]
        account_id: Option<String>,
        /// How access lists name the account [default: random]
        #[arg(long, value_name = "ID", requires = "account")]
        canonical_id: Option<String>,
        /// What listings show [default: the name]
        #[arg(long, value_name = "TEXT", requires = "account")]
        display_name: Option<String>,
        #[arg(long, requires = "account")]
        email: Option<String>,
        /// Write the account's ARNs without its id, as Ceph and MinIO do: arn:aws:iam:::role/NAME
        #[arg(long, requires = "account")]
        short_arns: bool,
        /// The user whose account this one joins [default: the account of root]
        #[arg(long, value_name = "USER", conflicts_with = "account")]
        of: Option<String>,
        /// The first access key [default: random]
        #[arg(long, value_name = "KEY")]
        access_key: Option<String>,
        /// A file that holds its secret; `-` is standard input
        #[arg(long, value_name = "FILE", requires = "access_key")]
        secret_file: Option<PathBuf>,
    },
    /// Remove a user with its access keys
    Delete { name: String },
    /// Let a disabled user in again
    Enable { name: String },
    /// Let a user in no more, until it is enabled
    Disable { name: String },
    /// Show all users
    List,
}

#[derive(Debug, clap::Args)]
#[command(after_help = GROUP_EXAMPLES)]
pub(super) struct Group {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    what: GroupWhat,
}

#[derive(Debug, Subcommand)]
enum GroupWhat {
    /// Make a group
    Create {
        name: String,
        /// The user whose account it belongs to [default: the account of root]
        #[arg(long, value_name = "USER")]
        of: Option<String>,
    },
    /// Remove a group without users
    Delete { name: String },
    /// Put a user into a group
    Join { group: String, user: String },
    /// Take a user out of a group
    Leave { group: String, user: String },
    /// Show all groups
    List,
}

#[derive(Debug, clap::Args)]
#[command(after_help = ROLE_EXAMPLES)]
pub(super) struct Role {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    what: RoleWhat,
}

#[derive(Debug, Subcommand)]
enum RoleWhat {
    /// Make a role
    Create {
        name: String,
        /// File of the policy that says who may take it
        #[arg(long, value_name = "FILE")]
        trust: PathBuf,
        /// The user whose account it belongs to [default: the account of root]
        #[arg(long, value_name = "USER")]
        of: Option<String>,
    },
    /// Remove a role; sessions in it end
    Delete { name: String },
    /// Show all roles
    List,
}

#[derive(Debug, clap::Args)]
#[command(after_help = KEY_EXAMPLES)]
pub(super) struct Key {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    what: KeyWhat,
}

#[derive(Debug, Subcommand)]
enum KeyWhat {
    /// Make another access key of a user
    Create {
        user: String,
        /// The access key [default: random]
        #[arg(long, value_name = "KEY")]
        access_key: Option<String>,
        /// A file that holds its secret; `-` is standard input
        #[arg(long, value_name = "FILE", requires = "access_key")]
        secret_file: Option<PathBuf>,
    },
    /// Remove an access key
    Delete { access_key: String },
    /// Accept a disabled access key again
    Enable { access_key: String },
    /// Accept an access key no more, until it is enabled
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
    place: Place,
    #[command(subcommand)]
    what: PolicyWhat,
}

#[derive(Debug, Subcommand)]
enum PolicyWhat {
    /// Make or replace a policy
    Put {
        name: String,
        /// File of JSON
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Show a policy
    Get { name: String },
    /// Remove a policy that is attached to nothing
    Delete { name: String },
    /// Give a policy to a user, group or role
    Attach {
        name: String,
        #[command(flatten)]
        to: Holder,
    },
    /// Take it away again
    Detach {
        name: String,
        #[command(flatten)]
        from: Holder,
    },
    /// Show all policies
    List,
}

#[derive(Debug, clap::Args)]
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
    let wanted = match &args.what {
        UserWhat::Create {
            name,
            account,
            account_id,
            canonical_id,
            display_name,
            email,
            short_arns,
            of,
            access_key,
            secret_file,
        } => json!({
            "order": "create-user", "name": name, "account": account, "account_id": account_id,
            "canonical_id": canonical_id, "display_name": display_name, "email": email,
            "short_arns": short_arns, "of": of,
            "access_key": access_key, "secret_key": secret(secret_file.as_ref())?,
        }),
        UserWhat::Delete { name } => json!({ "order": "delete-user", "name": name }),
        UserWhat::Enable { name } => json!({ "order": "enable-user", "name": name }),
        UserWhat::Disable { name } => json!({ "order": "disable-user", "name": name }),
        UserWhat::List => json!({ "order": "list-users" }),
    };
    run(&args.place, &wanted)
}

pub(super) fn run_group(args: &Group) -> Result<(), Failure> {
    let wanted = match &args.what {
        GroupWhat::Create { name, of } => json!({ "order": "create-group", "name": name, "of": of }),
        GroupWhat::Delete { name } => json!({ "order": "delete-group", "name": name }),
        GroupWhat::Join { group, user } => json!({ "order": "join-group", "group": group, "user": user }),
        GroupWhat::Leave { group, user } => json!({ "order": "leave-group", "group": group, "user": user }),
        GroupWhat::List => json!({ "order": "list-groups" }),
    };
    run(&args.place, &wanted)
}

pub(super) fn run_role(args: &Role) -> Result<(), Failure> {
    let wanted = match &args.what {
        RoleWhat::Create { name, trust, of } => {
            json!({ "order": "create-role", "name": name, "of": of, "trust": text(trust)? })
        }
        RoleWhat::Delete { name } => json!({ "order": "delete-role", "name": name }),
        RoleWhat::List => json!({ "order": "list-roles" }),
    };
    run(&args.place, &wanted)
}

pub(super) fn run_key(args: &Key) -> Result<(), Failure> {
    let wanted = match &args.what {
        KeyWhat::Create { user, access_key, secret_file } => json!({
            "order": "create-key", "user": user, "access_key": access_key, "secret_key": secret(secret_file.as_ref())?,
        }),
        KeyWhat::Delete { access_key } => json!({ "order": "delete-key", "access_key": access_key }),
        KeyWhat::Enable { access_key } => json!({ "order": "enable-key", "access_key": access_key }),
        KeyWhat::Disable { access_key } => json!({ "order": "disable-key", "access_key": access_key }),
        KeyWhat::Rotate { access_key } => json!({ "order": "rotate-key", "access_key": access_key }),
        KeyWhat::List { user } => json!({ "order": "list-keys", "user": user }),
    };
    run(&args.place, &wanted)
}

pub(super) fn run_policy(args: &Policy) -> Result<(), Failure> {
    let hung = |order: &str, name: &str, holder: &Holder| {
        json!({
            "order": order, "policy": name, "user": holder.user, "group": holder.group, "role": holder.role,
        })
    };
    let wanted = match &args.what {
        PolicyWhat::Put { name, file } => json!({ "order": "put-policy", "name": name, "document": text(file)? }),
        PolicyWhat::Get { name } => json!({ "order": "get-policy", "name": name }),
        PolicyWhat::Delete { name } => json!({ "order": "delete-policy", "name": name }),
        PolicyWhat::Attach { name, to } => hung("attach", name, to),
        PolicyWhat::Detach { name, from } => hung("detach", name, from),
        PolicyWhat::List => json!({ "order": "list-policies" }),
    };
    run(&args.place, &wanted)
}

/// The text of a file; `-` is standard input.
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

/// Lets the server do it, or does it here; prints the answer.
fn run(place: &Place, wanted: &Value) -> Result<(), Failure> {
    let env = Env::real();
    let settings = place.data.settings(&env)?;
    let answer = super::runtime(settings.storage.io_threads_max)?.block_on(async {
        if let Some(answer) = control::ask_with(&settings.data, Method::POST, ORDER_PATH, Some(wanted)).await? {
            return Ok(answer);
        }
        let storage = super::works::open_at_rest(&env, &settings)?;
        let identities = Identities::open(&env, &settings.data, &storage.volume, None).await?;
        let answer = identities.answer_json(wanted.to_string().as_bytes()).await.map_err(Failure::failed)?;
        storage.close()?;
        Ok::<Value, Failure>(answer)
    })?;
    if place.json {
        println!("{answer:#}");
    } else {
        show(&answer);
    }
    Ok(())
}

/// One line for each value; a list is a block for each item.
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
