//! Authorization: whether a caller may perform a request.
//!
//! Why:        one place combines all sources: the caller's, the session's and the bucket's policies, access lists and
//!             the public access block.
//! Layout:     `asked` lists a request's actions; `rules` holds a bucket's access settings; `context` resolves
//!             condition keys; `services` decides what concerns no bucket, `simulation` without a request; `acl_document`, `grants`, `ownership`, `public_access_block` are the forms of settings.
//! Invariants: A1 for the holder of the root keys nothing is read or checked.  A2 a request is decided before its body
//!                is read.
//!             A3 every denial is logged with its reason, which the client is not told.
//! Not here:   authentication (identities), the meaning of policies (margay-iam).

pub(crate) mod acl_document;
pub(crate) mod asked;
pub(crate) mod context;
pub(crate) mod grants;
pub(crate) mod new_list;
pub(crate) mod ownership;
pub(crate) mod public_access_block;
pub(crate) mod rules;
pub(crate) mod services;
pub mod simulation;

use std::sync::Arc;

use http::HeaderMap;
use margay_iam::acl::{Acl, Permission};
use margay_iam::registry::{Account, Identity, Part};
use margay_iam::{Caller, Decision, Policy, Reason, Request, Sources, decide};
use margay_volume::{Document, Documents, Error, ReadCondition, RequestRows, View, Volume};

use self::asked::{Asked, On, asked};
use self::context::{Circumstances, RequestContext};
use self::rules::BucketRules;
use crate::error::{Code, S3Error};
use crate::identities::{AccountName, Identities};
use crate::route::policy::Op;
use crate::route::query::Query;
use crate::route::target::Target;

/// The authorizer; one per door.
pub(crate) struct Access {
    pub identities: Arc<dyn Identities>,
    /// The account of the root keys.
    pub root: Arc<Account>,
}

/// The caller, and where the request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    /// `None`: an unsigned request.
    pub identity: Option<&'a Identity>,
    pub circumstances: Circumstances<'a>,
}

impl Asker<'_> {
    pub(crate) fn is_root(&self) -> bool {
        self.identity.is_some_and(Identity::is_root)
    }
}

/// The parts of a request that authorization needs.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'r> {
    pub access: &'r Access,
    pub volume: &'r Volume,
    pub rows: &'r RequestRows,
    pub asker: Asker<'r>,
    pub op: Op,
    pub target: &'r Target,
    pub query: &'r Query,
    pub headers: &'r HeaderMap,
}

impl Ask<'_> {
    /// The volume with the rows that the request has read.
    pub(crate) fn view(&self) -> View<'_> {
        self.volume.view(self.rows)
    }

    pub(crate) fn bucket(&self) -> &str {
        &self.target.bucket
    }

    pub(crate) fn key(&self) -> &str {
        &self.target.key
    }

    /// The value of a required header.
    pub(crate) fn header(&self, name: &'static str) -> Result<&str, S3Error> {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.ok_or_else(|| S3Error::argument(name, "", format!("{name} is required")))
    }
}

/// Facts about an object, read before the decision.
#[derive(Debug, Default)]
struct Object {
    is_absent: bool,
    acl: Option<Acl>,
    tags: Vec<(String, String)>,
}

impl Object {
    fn with(documents: &Documents) -> Object {
        let acl = documents.get(&Document::Acl).and_then(|bytes| acl_document::decode(bytes));
        let tags = documents.get(&Document::Tags).map(|bytes| tags(bytes)).unwrap_or_default();
        Object { is_absent: false, acl, tags }
    }
}

impl Access {
    /// The account that owns a bucket, according to its row.
    pub(crate) fn owner(&self, owner: &str) -> Arc<Account> {
        if owner.is_empty() || owner == self.root.id {
            return Arc::clone(&self.root);
        }
        let found = self.identities.account(AccountName::Id(owner));
        // A deleted account still owns its buckets.
        found.unwrap_or_else(|| gone(owner, &format!("gone-{owner}")))
    }

    /// Allows or refuses a request.
    pub(crate) async fn authorise(&self, call: &Ask<'_>) -> Result<(), S3Error> {
        if call.asker.is_root() {
            return Ok(());
        }
        for asked in asked(call)? {
            self.require(call, &asked).await?;
        }
        Ok(())
    }

    /// Allows or refuses one action.
    pub(crate) async fn require(&self, call: &Ask<'_>, asked: &Asked) -> Result<(), S3Error> {
        if call.asker.is_root() {
            return Ok(());
        }
        if asked.on == On::Service {
            return self.require_of_service(call, asked);
        }
        let caller = call.asker.identity.map_or(Caller::ANONYMOUS, Identity::caller);
        let decided = self.decided(call, asked, outcome).await?;
        decided.map_err(|because| denied(call, &caller, asked.action, &asked.arn(), &because))
    }

    /// Whether one action on a bucket or an object is allowed, and why not. `read` takes what the caller wants of a decision.
    async fn decided<R>(&self, call: &Ask<'_>, asked: &Asked, read: Read<R>) -> Result<Result<R, String>, S3Error> {
        let rules = BucketRules::of(call.view(), &asked.bucket).await?;
        let bucket_owner = self.owner(&rules.owner);
        let object = self.object(call, asked, &rules).await?;
        let caller = call.asker.identity.map_or(Caller::ANONYMOUS, Identity::caller);
        let outcome = self.judge_known(call, asked, (&rules, &bucket_owner), &object, read);
        let reads_nothing = object.is_absent && matches!(asked.on, On::Object(Some(Permission::Read)));
        Ok(match outcome {
            Ok(allowed) if !reads_nothing => Ok(allowed),
            Err(refusal) if !reads_nothing || refusal.is_deny => Err(refusal.text),
            // Only a caller who may list the bucket may learn that an object does not exist.
            _ => {
                let of_bucket = rules.acl.as_ref().filter(|_| rules.has_lists());
                let granted = of_bucket.is_some_and(|list| allows(call, &rules, list, Permission::Read));
                let bucket_arn = format!("arn:aws:s3:::{}", asked.bucket);
                // Evaluated as a listing with the key as prefix.
                let (owner, existing_tags) = (&*bucket_owner, &*object.tags);
                let looked_for = Some(asked.key.as_str());
                let listed = Judged { rules: &rules, owner, bucket_owner: owner, granted, existing_tags, looked_for };
                let judged = self.judge(call, &caller, "s3:ListBucket", &bucket_arn, &listed, read);
                judged.map_err(|_| "there is no such object, and the caller may not list the bucket".to_owned())
            }
        })
    }

    /// Whether the caller may do this to an object of a listing that has these documents. A refusal is not logged: nobody
    /// has named the object.
    pub(crate) async fn permits(
        &self,
        call: &Ask<'_>,
        (action, grant): (&'static str, Option<Permission>),
        (key, documents): (&str, &Documents),
    ) -> Result<bool, S3Error> {
        if call.asker.is_root() {
            return Ok(true);
        }
        let rules = BucketRules::of(call.view(), call.bucket()).await?;
        let owner = self.owner(&rules.owner);
        let (bucket, key) = (call.bucket().to_owned(), key.to_owned());
        let asked = Asked { action, on: On::Object(grant), bucket, key, version: None };
        Ok(self.judge_known(call, &asked, (&rules, &owner), &Object::with(documents), outcome).is_ok())
    }

    /// The decision by the policies and lists of a bucket, and the facts of an object.
    fn judge_known<R>(
        &self,
        call: &Ask<'_>,
        asked: &Asked,
        (rules, bucket_owner): (&BucketRules, &Arc<Account>),
        object: &Object,
        read: Read<R>,
    ) -> Result<R, Refusal> {
        let of_object = object.acl.as_ref().filter(|_| rules.has_lists());
        let of_bucket = rules.acl.as_ref().filter(|_| rules.has_lists());
        let (grant, list) = match asked.on {
            On::Object(grant) => (grant, of_object),
            On::Bucket(grant) => (grant, of_bucket),
            On::Entry => (Some(Permission::Write), of_bucket),
            On::Service | On::Attached => (None, None),
        };
        let owner = match list {
            Some(list) if matches!(asked.on, On::Object(_)) => self.owner_by_canonical_id(&list.owner),
            _ => Arc::clone(bucket_owner),
        };
        let caller = call.asker.identity.map_or(Caller::ANONYMOUS, Identity::caller);
        let judged = Judged {
            rules,
            owner: &owner,
            bucket_owner,
            granted: grant.zip(list).is_some_and(|(grant, list)| allows(call, rules, list, grant)),
            existing_tags: &object.tags,
            looked_for: None,
        };
        self.judge(call, &caller, asked.action, &asked.arn(), &judged, read)
    }

    /// Loads the object's facts that the decision needs, if any.
    async fn object(&self, call: &Ask<'_>, asked: &Asked, rules: &BucketRules) -> Result<Object, S3Error> {
        let needs = match asked.on {
            On::Object(Some(Permission::Read)) => true,
            On::Object(_) | On::Attached => rules.has_lists() || self.asks_for_tags(call, rules),
            On::Service | On::Bucket(_) | On::Entry => false,
        };
        if !needs {
            return Ok(Object::default());
        }
        match call.view().head_version(&asked.bucket, &asked.key, asked.version, &ReadCondition::default()).await {
            Ok(info) => Ok(Object::with(&info.documents)),
            Err(Error::NoSuchKey | Error::NoSuchVersion | Error::Deleted(_)) => {
                Ok(Object { is_absent: true, ..Object::default() })
            }
            // It exists, without list or tags; the operation decides what is not allowed on a delete marker.
            Err(Error::DeleteMarker { .. }) => Ok(Object::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// The account that an access list names as owner.
    fn owner_by_canonical_id(&self, id: &str) -> Arc<Account> {
        if id == self.root.canonical_id {
            return Arc::clone(&self.root);
        }
        self.identities.account(AccountName::CanonicalId(id)).unwrap_or_else(|| gone(id, id))
    }

    fn require_of_service(&self, call: &Ask<'_>, asked: &Asked) -> Result<(), S3Error> {
        let caller = call.asker.identity.map_or(Caller::ANONYMOUS, Identity::caller);
        let arn = asked.arn();
        let Some(identity) = call.asker.identity else {
            return Err(denied(call, &caller, asked.action, &arn, "the request is not signed"));
        };
        let judged = self.judge_service(call, identity, asked, outcome);
        judged.map_err(|refusal| denied(call, &caller, asked.action, &arn, &refusal.text))
    }

    fn judge_service<R>(
        &self,
        call: &Ask<'_>,
        identity: &Identity,
        asked: &Asked,
        read: Read<R>,
    ) -> Result<R, Refusal> {
        let (caller, context) = (identity.caller(), self.context(call, None));
        let request = Request { caller: &caller, action: asked.action, resource: &asked.arn(), context: &context };
        with_identity(identity, Sources { is_own: true, ..Sources::default() }, &request, read)
    }

    /// The condition keys; without a bucket, only those of the request.
    fn context<'a>(&self, call: &'a Ask<'_>, judged: Option<&Judged<'a>>) -> RequestContext<'a> {
        RequestContext {
            circumstances: &call.asker.circumstances,
            headers: call.headers,
            query: call.query,
            identity: call.asker.identity,
            resource_account: judged.map(|judged| judged.bucket_owner.id.as_str()),
            bucket_tags: judged.map_or(&[], |judged| &judged.rules.tags),
            existing_tags: judged.map_or(&[], |judged| judged.existing_tags),
            looked_for: judged.and_then(|judged| judged.looked_for),
        }
    }

    fn judge<R>(
        &self,
        call: &Ask<'_>,
        caller: &Caller<'_>,
        action: &str,
        arn: &str,
        judged: &Judged<'_>,
        read: Read<R>,
    ) -> Result<R, Refusal> {
        let rules = judged.rules;
        if rules.damaged {
            return Err(Refusal::deny("the bucket's policy cannot be read"));
        }
        let policy = rules.policy.as_ref();
        let public = rules.block.restrict_buckets && policy.is_some_and(Policy::is_public);
        if public && caller.account != judged.bucket_owner.id {
            return Err(Refusal::deny("RestrictPublicBuckets and a public policy"));
        }
        let context = self.context(call, Some(judged));
        let request = Request { caller, action, resource: arn, context: &context };
        let is_own = !caller.account.is_empty() && caller.account == judged.owner.id;
        let sources = Sources { is_own, bucket: policy, granted: judged.granted, ..Sources::default() };
        match call.asker.identity {
            Some(identity) => with_identity(identity, sources, &request, read),
            None => read(decide(&sources, &request)),
        }
    }

    /// Whether an applicable policy uses the object's tags.
    fn asks_for_tags(&self, call: &Ask<'_>, rules: &BucketRules) -> bool {
        const TAGS: &str = "s3:existingobjecttag/";
        let own = call.asker.identity.into_iter().flat_map(|identity| {
            let policies = identity.policies.iter().flatten().map(|(_, policy)| policy);
            policies.chain(&identity.session_policy).map(Arc::as_ref)
        });
        own.chain(rules.policy.as_ref()).any(|policy| policy.asks_for(TAGS))
    }
}

/// Inputs of a decision about a bucket.
#[derive(Clone, Copy)]
struct Judged<'a> {
    rules: &'a BucketRules,
    /// The owner of the resource.
    owner: &'a Account,
    bucket_owner: &'a Account,
    granted: bool,
    existing_tags: &'a [(String, String)],
    /// The missing key, where the right to list decides.
    looked_for: Option<&'a str>,
}

/// The reason for a refusal.
struct Refusal {
    /// An explicit deny, rather than the lack of an allow.
    is_deny: bool,
    text: String,
}

impl Refusal {
    fn deny(text: &str) -> Refusal {
        Refusal { is_deny: true, text: text.to_owned() }
    }

    fn of(decision: Decision<'_>) -> Refusal {
        let is_deny = matches!(decision.reason, Reason::Statement { .. });
        Refusal { is_deny, text: decision.reason.to_string() }
    }
}

/// What the caller of a decision wants of it.
type Read<R> = fn(Decision<'_>) -> Result<R, Refusal>;

fn with_identity<R>(
    identity: &Identity,
    sources: Sources<'_>,
    request: &Request<'_>,
    read: Read<R>,
) -> Result<R, Refusal> {
    let is_account = matches!(identity.role, Part::Account { .. } | Part::Root);
    with_policies(identity, Sources { is_account, ..sources }, request, read)
}

/// Decides with the policies of the identity and its session.
fn with_policies<R>(
    identity: &Identity,
    sources: Sources<'_>,
    request: &Request<'_>,
    read: Read<R>,
) -> Result<R, Refusal> {
    let Some(policies) = &identity.policies else {
        return Err(Refusal::deny("a policy of the caller is missing or cannot be read"));
    };
    let named: Vec<(&str, &Policy)> = policies.iter().map(|(name, policy)| (name.as_str(), policy.as_ref())).collect();
    let session = identity.session_policy.as_deref();
    read(decide(&Sources { identity: &named, session, ..sources }, request))
}

fn outcome(decision: Decision<'_>) -> Result<(), Refusal> {
    if decision.allowed { Ok(()) } else { Err(Refusal::of(decision)) }
}

/// As `outcome`, with the reason of an allow.
fn explained(decision: Decision<'_>) -> Result<String, Refusal> {
    if decision.allowed { Ok(decision.reason.to_string()) } else { Err(Refusal::of(decision)) }
}

/// Whether an access list grants this to the caller.
fn allows(call: &Ask<'_>, rules: &BucketRules, list: &Acl, grant: Permission) -> bool {
    let somebody = call.asker.identity.map(|identity| identity.account.canonical_id.as_str());
    list.allows(somebody, grant, rules.block.ignore_acls)
}

/// Logs and returns the refusal of a request.
fn denied(call: &Ask<'_>, caller: &Caller<'_>, action: &str, arn: &str, because: &str) -> S3Error {
    let who = if caller.account.is_empty() { "anonymous".to_owned() } else { caller.arn() };
    tracing::info!(
        target: "margay::access",
        %who,
        %action,
        resource = %arn,
        operation = call.op.name(),
        peer = %call.asker.circumstances.peer,
        %because,
        "denied"
    );
    Code::AccessDenied.into()
}

/// A placeholder for a deleted account.
fn gone(id: &str, canonical_id: &str) -> Arc<Account> {
    let (id, canonical_id) = (id.to_owned(), canonical_id.to_owned());
    Arc::new(Account { display_name: id.clone(), id, canonical_id, email: None, short_arns: false })
}

/// Stored tags: `key=value&key=value`, percent-encoded.
fn tags(stored: &[u8]) -> Vec<(String, String)> {
    let text = std::str::from_utf8(stored).unwrap_or_default();
    // Stored tags were validated; invalid ones count as none.
    let tags = Query::parse(text).unwrap_or_default();
    tags.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
