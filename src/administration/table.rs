//! The works of administration: the path of each, the action that allows it, and on what.
//!
//! Why:        one table says what the control socket takes, what a signed request may do and what a policy must allow;
//!             docs/administration.md repeats it, and a test compares both.
//! Invariants: B1 a path with a method is in it once.  B2 an order about identities that is not in `ORDERS` is done for root only.
//! Not here:   what a work does (`works`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::Method;
use margay_accounts::identities::ORDER_PATH;
use margay_s3::administration::SERVER;
use serde_json::Value;

use super::fields::{Field, Holds};
use super::{NotDone, WorkAnswer, simulate, top, watch, works};
use crate::server::Server;

pub(super) type Done<'a> = Pin<Box<dyn Future<Output = Result<WorkAnswer, NotDone>> + Send + 'a>>;

/// From where a work may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Also by signed requests.
    Anywhere,
    /// It names files of the server's machine.
    Socket,
}

/// The resource of a work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Server,
    /// The bucket that the wish names.
    Bucket,
}

/// One work.
#[derive(Clone, Copy)]
pub struct AdminWork {
    pub method: &'static str,
    pub path: &'static str,
    /// What a policy must allow; empty for orders about identities, which have one each.
    action: &'static str,
    on: On,
    pub reach: Reach,
    /// It changes something, so the audit log has it in any case.
    pub changes: bool,
    /// Of its wish; `None`: the work reads a form of its own and refuses what that does not have.
    pub(super) fields: Option<&'static [Field]>,
    pub(super) run: for<'a> fn(&'a Arc<Server>, Value) -> Done<'a>,
}

impl std::fmt::Debug for AdminWork {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AdminWork({} {})", self.method, self.path)
    }
}

/// The orders about identities, and the action of each.
pub const ORDERS: &[(&str, &str)] = &[
    ("create-user", "admin:CreateUser"),
    ("delete-user", "admin:DeleteUser"),
    ("enable-user", "admin:EnableUser"),
    ("disable-user", "admin:DisableUser"),
    ("list-users", "admin:ListUsers"),
    ("create-group", "admin:CreateGroup"),
    ("delete-group", "admin:DeleteGroup"),
    ("join-group", "admin:JoinGroup"),
    ("leave-group", "admin:LeaveGroup"),
    ("list-groups", "admin:ListGroups"),
    ("create-role", "admin:CreateRole"),
    ("delete-role", "admin:DeleteRole"),
    ("list-roles", "admin:ListRoles"),
    ("put-policy", "admin:PutPolicy"),
    ("delete-policy", "admin:DeletePolicy"),
    ("get-policy", "admin:GetPolicy"),
    ("list-policies", "admin:ListPolicies"),
    ("attach", "admin:AttachPolicy"),
    ("detach", "admin:DetachPolicy"),
    ("create-key", "admin:CreateKey"),
    ("delete-key", "admin:DeleteKey"),
    ("enable-key", "admin:EnableKey"),
    ("disable-key", "admin:DisableKey"),
    ("rotate-key", "admin:RotateKey"),
    ("list-keys", "admin:ListKeys"),
];

macro_rules! fields {
    (any) => {
        None
    };
    ([$($name:ident: $holds:ident),*]) => {
        Some(&[$((stringify!($name), Holds::$holds)),*])
    };
}

macro_rules! works {
    ($($method:literal $path:expr, $action:literal, $on:ident, $reach:ident, $changes:literal, $fields:tt => $run:path;)*) => {
        /// All works.
        pub static WORKS: &[AdminWork] = &[$(AdminWork {
            method: $method,
            path: $path,
            action: $action,
            on: On::$on,
            reach: Reach::$reach,
            changes: $changes,
            fields: fields!($fields),
            run: |server, wish| Box::pin($run(server, wish)),
        }),*];
    };
}

works! {
    "GET" "/status", "admin:Status", Server, Anywhere, false, [] => works::status;
    "GET" "/clock", "admin:Status", Server, Anywhere, false, [] => works::clock;
    "POST" "/clock/confirm", "admin:ConfirmClock", Server, Anywhere, true, [] => works::confirm_clock;
    "POST" "/top", "admin:Top", Server, Anywhere, false, [seconds: Number] => top::answer;
    "POST" "/trace", "admin:Trace", Server, Anywhere, false, [errors: Flag, operation: Text, bucket: Text, slower_than_ms: Number] => watch::answer;
    "GET" "/buckets", "admin:ListBuckets", Server, Anywhere, false, [] => works::buckets;
    "POST" "/du", "admin:ListBuckets", Server, Anywhere, false, [] => works::buckets;
    "POST" "/quota", "admin:SetQuota", Bucket, Anywhere, true, [bucket: Text, objects_max: Number, bytes_max: Number] => works::quota;
    "POST" "/inventory", "admin:Inventory", Bucket, Anywhere, false, [bucket: Text, prefix: Text, after: Text] => works::inventory;
    "POST" "/where", "admin:LocateObject", Bucket, Anywhere, false, [bucket: Text, key: Text] => works::locate;
    "POST" "/recover", "admin:RecoverObject", Bucket, Anywhere, true, [bucket: Text, key: Text] => works::recover;
    "GET" "/mounts", "admin:ListMounts", Server, Anywhere, false, [] => works::mounts;
    "POST" "/scrub", "admin:Scrub", Server, Anywhere, true, [] => works::scrub;
    "POST" "/compact", "admin:Compact", Server, Anywhere, true, [] => works::compact;
    "POST" "/fsck", "admin:Check", Server, Anywhere, false, [show: Number] => works::fsck;
    "POST" "/simulate", "admin:SimulatePolicy", Server, Anywhere, false, [who: Text, source_ip: Text, secure: Flag, prefix: Text, questions: Anything] => simulate::answer;
    "POST" ORDER_PATH, "", Server, Anywhere, true, any => works::identities;
    "POST" "/mount", "admin:Mount", Bucket, Socket, true, [bucket: Text, path: Text, options: Text, create: Flag] => works::mount;
    "POST" "/unmount", "admin:Unmount", Server, Anywhere, true, [path: Text, seconds: Number] => works::unmount;
    "POST" "/disk", "admin:ChangeDisks", Server, Socket, true, [do: Text, path: Text] => works::disk;
    "POST" "/backup", "admin:Backup", Server, Socket, true, [to: Anything, with_keys: Flag, keep: Number] => works::backup;
    "POST" "/dump", "admin:Dump", Server, Socket, true, [only_rows: Flag, with_keys: Flag] => works::dump;
}

/// The work of a request.
pub(super) fn find(method: &Method, path: &str) -> Option<&'static AdminWork> {
    WORKS.iter().find(|work| work.path == path && work.method == method.as_str())
}

impl AdminWork {
    /// What a policy must allow for this wish; `None` for an order that is not known.
    pub fn action(&self, wish: &Value) -> Option<&'static str> {
        if !self.action.is_empty() {
            return Some(self.action);
        }
        let order = wish["order"].as_str()?;
        ORDERS.iter().find(|(known, _)| *known == order).map(|(_, action)| *action)
    }

    /// What a policy must allow, where that is the same for every wish; orders about identities have one each (`ORDERS`).
    pub fn fixed_action(&self) -> Option<&'static str> {
        (!self.action.is_empty()).then_some(self.action)
    }

    /// Whether its resource is the bucket that the wish names.
    pub fn is_of_bucket(&self) -> bool {
        self.on == On::Bucket
    }

    /// The ARN that a policy must name.
    pub fn resource(&self, wish: &Value) -> String {
        match (self.on, wish["bucket"].as_str()) {
            (On::Bucket, Some(bucket)) => format!("arn:aws:s3:::{bucket}"),
            _ => SERVER.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_order_has_an_action() {
        let error = serde_json::from_value::<margay_accounts::identities::Wanted>(json!({ "order": "?" })).unwrap_err();
        let known: BTreeSet<String> = error.to_string().split('`').skip(3).step_by(2).map(str::to_owned).collect();
        let listed: BTreeSet<String> = ORDERS.iter().map(|(order, _)| (*order).to_owned()).collect();
        assert!(known.len() > 20, "{error}");
        assert_eq!(known, listed);
        let actions: BTreeSet<&str> = ORDERS.iter().map(|(_, action)| *action).collect();
        assert_eq!(actions.len(), ORDERS.len(), "each order has an action of its own");
    }

    #[test]
    fn a_path_is_one_work() {
        let paths: BTreeSet<(&str, &str)> = WORKS.iter().map(|work| (work.method, work.path)).collect();
        assert_eq!(paths.len(), WORKS.len());
        assert!(find(&Method::GET, "/scrub").is_none() && find(&Method::POST, "/scrub").is_some());
    }

    #[test]
    fn resources_and_actions_follow_the_wish() {
        let work = |path| find(&Method::POST, path).unwrap();
        assert_eq!(work("/quota").resource(&json!({ "bucket": "b" })), "arn:aws:s3:::b");
        assert_eq!(work("/quota").resource(&json!({})), SERVER);
        assert_eq!(work(ORDER_PATH).action(&json!({ "order": "attach" })), Some("admin:AttachPolicy"));
        for bad in [json!({}), json!({ "order": 7 }), json!({ "order": "?" })] {
            assert_eq!(work(ORDER_PATH).action(&bad), None);
        }
    }

    /// docs/administration.md has one line for each action.
    #[test]
    fn the_documented_actions_are_those_of_the_table() {
        let page = include_str!("../../docs/administration.md");
        let named: BTreeSet<&str> =
            page.lines().filter_map(|line| line.strip_prefix("| `admin:")?.split('`').next()).collect();
        let own = WORKS.iter().map(|work| work.action).chain(ORDERS.iter().map(|(_, action)| *action));
        let own: BTreeSet<&str> = own.filter_map(|action| action.strip_prefix("admin:")).collect();
        assert_eq!(named, own);
    }
}
