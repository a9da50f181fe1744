//! Identity providers (OpenID Connect) that an account's trust policies name.
//!
//! Not here: keys of a provider. Tokens are accepted only from the issuer in the server's settings: fetching keys from
//!           any URL that a caller names would be server-side request forgery.

use margay_iam::registry::{Order, Provider};

use super::{Work, entity};
use crate::error::{Code, S3Error};
use crate::query_api::{self, members};
use crate::reply::Reply;
use crate::xml::write::{Writer, escape};

const FIELD: &str = "OpenIDConnectProviderArn";
const WORD: &str = "oidc-provider";

fn arn(provider: &Provider) -> String {
    format!("arn:aws:iam::{}:{WORD}/{}", provider.account, provider.name())
}

/// The id of the provider with the given ARN.
fn id(work: &Work<'_>) -> Result<String, S3Error> {
    let name = work.own_arn(work.required(FIELD)?, WORD)?;
    Ok(format!("{}/{name}", work.account()))
}

pub(super) async fn create(work: &Work<'_>) -> Result<Reply, S3Error> {
    let (account, url) = (work.account().to_owned(), work.required("Url")?.to_owned());
    let provider = Provider {
        id: String::new(),
        account,
        url,
        clients: members(work.call.form, "ClientIDList"),
        thumbprints: members(work.call.form, "ThumbprintList"),
        created: 0,
    };
    let arn = work.shown(arn(&provider));
    let Provider { account, url, clients, thumbprints, .. } = provider;
    work.order(Order::CreateProvider { account, url, clients, thumbprints }).await?;
    Ok(work.answer(|writer| writer.text(FIELD, &arn)))
}

pub(super) async fn get(work: &Work<'_>) -> Result<Reply, S3Error> {
    let id = id(work)?;
    let provider = work.registry.providers.get(&id).ok_or(Code::NoSuchEntity)?;
    Ok(work.answer(|writer| {
        writer.text("Url", &provider.url);
        list_of(writer, "ClientIDList", &provider.clients);
        list_of(writer, "ThumbprintList", &provider.thumbprints);
        entity::date(writer, "CreateDate", provider.created);
    }))
}

fn list_of(writer: &mut Writer<'_>, name: &str, texts: &[String]) {
    writer.open(name);
    for text in texts {
        writer.open("member");
        escape(writer.buffer(), text);
        writer.close("member");
    }
    writer.close(name);
}

pub(super) async fn list(work: &Work<'_>) -> Result<Reply, S3Error> {
    let own = work.registry.providers.values().filter(|provider| provider.account == work.account());
    Ok(work.answer(|writer| {
        writer.open("OpenIDConnectProviderList");
        for provider in own {
            writer.open("member");
            writer.text("Arn", &work.shown(arn(provider)));
            writer.close("member");
        }
        writer.close("OpenIDConnectProviderList");
    }))
}

/// A change of an existing provider.
#[derive(Default)]
struct Update {
    add_client: Option<String>,
    remove_client: Option<String>,
    thumbprints: Option<Vec<String>>,
}

async fn update(work: &Work<'_>, update: Update) -> Result<Reply, S3Error> {
    let Update { add_client, remove_client, thumbprints } = update;
    work.order(Order::UpdateProvider { id: id(work)?, add_client, remove_client, thumbprints }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn add_client(work: &Work<'_>) -> Result<Reply, S3Error> {
    let client = work.required("ClientID")?.to_owned();
    update(work, Update { add_client: Some(client), ..Update::default() }).await
}

pub(super) async fn remove_client(work: &Work<'_>) -> Result<Reply, S3Error> {
    let client = work.required("ClientID")?.to_owned();
    update(work, Update { remove_client: Some(client), ..Update::default() }).await
}

pub(super) async fn update_thumbprints(work: &Work<'_>) -> Result<Reply, S3Error> {
    let thumbprints = members(work.call.form, "ThumbprintList");
    if thumbprints.is_empty() {
        return Err(query_api::invalid("ThumbprintList is missing"));
    }
    update(work, Update { thumbprints: Some(thumbprints), ..Update::default() }).await
}

pub(super) async fn delete(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.order(Order::DeleteProvider { id: id(work)? }).await?;
    Ok(work.answer(|_| ()))
}
