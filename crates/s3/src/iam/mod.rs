//! AWS's Identity and Access Management API: users, groups, roles, their keys and policies, on the S3 endpoint.
//!
//! Why:        scripts written for AWS work here, and an account can manage itself.
//! Layout:     `action` lists the actions and their resources; `rights` authorizes the caller; one file per kind of
//!             entity executes; `entity` and `page` are forms of the responses.
//! Invariants: I1 the caller's policies are evaluated on the action's ARN before anything is looked up; an unsigned
//!                request has no rights.
//!             I2 nothing of another account can be named.  I3 a secret is only in the response that created it.
//! Not here:   changes of an order (margay-iam), storage (margay-accounts).

mod access_keys;
mod account_summary;
mod action;
mod attached_policies;
mod entity;
mod groups;
mod inline_policies;
mod page;
mod policies;
mod policy_versions;
mod providers;
mod rights;
mod roles;
mod tags;
mod users;

use std::sync::Arc;

use http::HeaderMap;
use margay_iam::registry::{Entity, Identity, Kind, Named, Order, Part, Registry, User};

use self::action::Action;
pub use self::action::names as actions;
use crate::access::context::Circumstances;
use crate::error::{Code, S3Error};
use crate::identities::{Identities, OrderError, caught_up};
use crate::query_api::{self, Service};
use crate::reply::Reply;
use crate::route::query::Query;
use crate::xml::write::Writer;

/// A request with a valid signature.
pub(crate) struct Call<'a> {
    pub identities: &'a dyn Identities,
    pub identity: &'a Identity,
    pub circumstances: &'a Circumstances<'a>,
    pub headers: &'a HeaderMap,
    pub form: &'a Query,
    pub request_id: &'a str,
}

/// Executes the action of the form.
pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let name = query_api::required(call.form, "Action")?;
    let Some(action) = action::find(name) else {
        return Err(S3Error::new(Code::InvalidAction, format!("Could not find operation {name}")));
    };
    // Another process may have carried out what this request is about.
    caught_up(call.identities.catch_up()).await?;
    let work = Work { call, action, registry: call.identities.registry() };
    for resource in work.resources()? {
        work.require(&resource)?;
    }
    (action.run)(&work).await
}

/// An authorized action.
pub(in crate::iam) struct Work<'a> {
    call: &'a Call<'a>,
    action: &'static Action,
    /// All identities at the time of the request.
    registry: Arc<Registry>,
}

impl Work<'_> {
    /// The caller's account, in which everything is looked up.
    fn account(&self) -> &str {
        &self.call.identity.account.id
    }

    /// An ARN of the account in the form that clients see.
    fn shown(&self, arn: String) -> String {
        self.call.identity.account.shown_arn(arn)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.call.form.get(name)
    }

    fn required(&self, name: &str) -> Result<&str, S3Error> {
        query_api::required(self.call.form, name)
    }

    /// The entity that a field names, in the form of orders.
    fn named(&self, field: &str) -> Result<Named, S3Error> {
        Ok(Named::in_account(self.account(), self.required(field)?))
    }

    /// The entity of the caller's account that a field names.
    fn find<E: Entity>(&self, field: &str) -> Result<&E, S3Error> {
        Ok(self.registry.find_named::<E>(&self.named(field)?)?)
    }

    /// The user in `UserName`. The user that represents the account is not one of its users.
    fn user(&self) -> Result<&User, S3Error> {
        let user = self.find::<User>("UserName")?;
        match user.is_account {
            true => Err(S3Error::new(Code::NoSuchEntity, format!("there is no user {}", user.name))),
            false => Ok(user),
        }
    }

    /// The user in `UserName`, or else the caller.
    fn user_or_caller(&self) -> Result<&User, S3Error> {
        if self.get("UserName").is_some() {
            return self.user();
        }
        let identity = self.call.identity;
        let found = match identity.role {
            Part::User { .. } => self.registry.users.get(&identity.id),
            Part::Account { .. } => self.registry.user_of_account(&identity.account.id),
            Part::Root => {
                return Err(S3Error::new(Code::InvalidInput, "the root keys are set where the server is started"));
            }
            Part::Session { .. } => return Err(query_api::invalid("UserName is missing, and a session is no user")),
        };
        found.ok_or_else(|| Code::NoSuchEntity.into())
    }

    /// The entity whose policies or tags are addressed.
    fn holder(&self, kind: Kind) -> Result<Named, S3Error> {
        match kind {
            Kind::User => self.user().map(|user| Named::in_account(&user.account, &user.name)),
            Kind::Group => self.named("GroupName"),
            _ => self.named("RoleName"),
        }
    }

    fn path(&self) -> String {
        self.get("Path").unwrap_or(margay_iam::registry::NO_PATH).to_owned()
    }

    /// Executes an order.
    async fn order(&self, order: Order) -> Result<(), S3Error> {
        match self.call.identities.order(order).await {
            Ok(()) => {
                let (who, action) = (self.call.identity.caller().arn(), self.action.name);
                let resource = self.resources()?.join(" ");
                tracing::info!(target: "margay::access", who, action, resource, "done");
                Ok(())
            }
            Err(OrderError::Refused(error)) => Err(error.into()),
            Err(OrderError::Unanswered(cause)) => {
                tracing::warn!(cause, "a change of users was given up");
                Err(S3Error::new(Code::ServiceUnavailable, format!("No answer in time: {cause}.")))
            }
            Err(OrderError::Failed(cause)) => Err(S3Error::internal(&cause)),
        }
    }

    fn answer(&self, inside: impl FnOnce(&mut Writer<'_>)) -> Reply {
        query_api::answer(Service::Iam, self.action.name, self.call.request_id, inside)
    }

    /// All identities after a change.
    fn now(&self) -> Arc<Registry> {
        self.call.identities.registry()
    }
}

/// The new entity was deleted before it could be shown.
fn gone() -> S3Error {
    Code::NoSuchEntity.into()
}
