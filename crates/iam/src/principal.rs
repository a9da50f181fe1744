//! Principals: whom a statement applies to.
//!
//! Invariants: P1 a name with a wildcard inside is refused: a principal is one name or everybody.
//! Not here:   authentication (the door).

use serde::Deserialize;

use crate::json::{OneOrMany, UniqueMap};

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller<'a> {
    pub who: Who<'a>,
    /// Twelve digits; empty for an anonymous caller.
    pub account: &'a str,
    /// The canonical id of the account.
    pub canonical_id: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    Anonymous,
    /// The account itself, which may do everything with its own resources.
    Account,
    User {
        /// The user's path; names are unique without it.
        path: &'a str,
        name: &'a str,
    },
    /// A temporary session of a role.
    Role {
        role: &'a str,
        session: &'a str,
    },
    /// A person authenticated by an identity provider, who requests a session.
    Federated {
        provider: &'a str,
    },
}

impl Caller<'_> {
    /// An anonymous caller.
    pub const ANONYMOUS: Caller<'static> = Caller { who: Who::Anonymous, account: "", canonical_id: "" };

    /// The caller's ARN, as policies name it.
    pub fn arn(&self) -> String {
        match self.who {
            Who::Anonymous => String::new(),
            Who::Account => format!("arn:aws:iam::{}:root", self.account),
            Who::User { path, name } => format!("arn:aws:iam::{}:user{path}{name}", self.account),
            Who::Role { role, session } => format!("arn:aws:sts::{}:assumed-role/{role}/{session}", self.account),
            Who::Federated { provider } => format!("arn:aws:iam::{}:oidc-provider/{provider}", self.account),
        }
    }
}

/// How exactly a principal names the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    No,
    /// The caller's account: rights granted to it must be passed on by policies of the account.
    Account,
    /// The caller itself, or everybody.
    Caller,
    /// This very session of a role.
    Session,
}

/// The principals of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Principals(Vec<Principal>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Principal {
    Everybody,
    Account(String),
    CanonicalUser(String),
    /// An empty account stands for the one that owns the policy (`Principals::owned_by`); until that is set it matches
    /// none.
    User {
        account: String,
        name: String,
    },
    Role {
        account: String,
        name: String,
    },
    Session {
        account: String,
        role: String,
        session: String,
    },
    Federated(String),
    /// A service of AWS; none of them calls this server.
    Service,
}

/// `"*"`, or an object of names by kind.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum PrincipalJson {
    Star(String),
    Kinds(UniqueMap<OneOrMany<String>>),
}

impl Principals {
    pub(crate) fn parse(json: PrincipalJson) -> Result<Principals, &'static str> {
        let kinds = match json {
            PrincipalJson::Star(star) if star == "*" => return Ok(Principals(vec![Principal::Everybody])),
            PrincipalJson::Star(_) => return Err("a principal is \"*\" or an object like {\"AWS\": ...}"),
            PrincipalJson::Kinds(kinds) => kinds,
        };
        let mut principals = Vec::new();
        for (kind, names) in kinds.0 {
            for name in names.into_vec() {
                principals.push(match kind.as_str() {
                    "AWS" => parse_aws(&name)?,
                    "CanonicalUser" if !name.is_empty() && !name.contains(['*', '?']) => Principal::CanonicalUser(name),
                    "Federated" if !name.is_empty() => Principal::Federated(name),
                    "Service" => Principal::Service,
                    _ => return Err("a principal has the kind AWS, CanonicalUser, Federated or Service, and a name"),
                });
            }
        }
        if principals.is_empty() { Err("no principal is named") } else { Ok(Principals(principals)) }
    }

    /// Fills in the account that owns the policy where a principal names none.
    pub(crate) fn owned_by(&mut self, owner: &str) {
        for principal in &mut self.0 {
            if let Principal::User { account, .. }
            | Principal::Role { account, .. }
            | Principal::Session { account, .. } = principal
                && account.is_empty()
            {
                owner.clone_into(account);
            }
        }
    }

    pub(crate) fn has_everybody(&self) -> bool {
        self.0.contains(&Principal::Everybody)
    }

    /// How exactly the principals name the caller, if at all.
    pub(crate) fn fit(&self, caller: &Caller<'_>) -> Fit {
        self.0.iter().map(|principal| principal.fit(caller)).max().unwrap_or(Fit::No)
    }
}

fn parse_aws(name: &str) -> Result<Principal, &'static str> {
    const WRONG: &str =
        "an AWS principal is *, an account id, or the ARN of an account's root, a user, a role or a session";
    if name == "*" {
        return Ok(Principal::Everybody);
    }
    if is_account(name) {
        return Ok(Principal::Account(name.to_owned()));
    }
    let mut parts = name.splitn(6, ':');
    let mut next = || parts.next().ok_or(WRONG);
    let (arn, partition, service, region, account, rest) = (next()?, next()?, next()?, next()?, next()?, next()?);
    let account_fits = account.is_empty() || is_account(account);
    if arn != "arn" || !partition.starts_with("aws") || !region.is_empty() || !account_fits || rest.contains(['*', '?'])
    {
        return Err(WRONG);
    }
    let account = account.to_owned();
    // The path before the name is ignored: names are unique in an account without it.
    let last = |path: &str| path.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned).ok_or(WRONG);
    match (service, rest.split_once('/')) {
        ("iam", None) if rest == "root" && !account.is_empty() => Ok(Principal::Account(account)),
        ("iam", Some(("user", path))) => Ok(Principal::User { account, name: last(path)? }),
        ("iam", Some(("role", path))) => Ok(Principal::Role { account, name: last(path)? }),
        ("iam", Some(("oidc-provider", _))) => Ok(Principal::Federated(name.to_owned())),
        // Ceph writes `iam` here.
        ("sts" | "iam", Some(("assumed-role", path))) => {
            let (role, session) = path.split_once('/').ok_or(WRONG)?;
            Ok(Principal::Session { account, role: role.to_owned(), session: session.to_owned() })
        }
        _ => Err(WRONG),
    }
}

/// Whether a text has the form of an account id.
fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Principal {
    fn fit(&self, caller: &Caller<'_>) -> Fit {
        let here = |account: &String| !account.is_empty() && account == caller.account;
        let exactly = |fits: bool| if fits { Fit::Caller } else { Fit::No };
        let whole_account = |fits: bool| match (fits, caller.who) {
            (false, _) | (true, Who::Anonymous | Who::Federated { .. }) => Fit::No,
            (true, Who::Account) => Fit::Caller,
            (true, _) => Fit::Account,
        };
        match (self, caller.who) {
            (Principal::Everybody, _) => Fit::Caller,
            (Principal::Account(account), _) => whole_account(account == caller.account),
            (Principal::CanonicalUser(id), _) => whole_account(id == caller.canonical_id),
            (Principal::User { account, name }, Who::User { name: own, .. }) => exactly(name == own && here(account)),
            (Principal::Role { account, name }, Who::Role { role, .. }) => exactly(name == role && here(account)),
            (Principal::Session { account, role, session }, Who::Role { role: own, session: other }) => {
                if role == own && session == other && here(account) { Fit::Session } else { Fit::No }
            }
            (Principal::Federated(name), Who::Federated { provider }) => {
                let of_arn = name.split_once(":oidc-provider/").map(|(_, provider)| provider);
                exactly(name == provider || of_arn == Some(provider))
            }
            _ => Fit::No,
        }
    }
}
