//! Tags of users and roles.

use margay_iam::registry::{Kind, Order, Role, TAGS_MAX, Tags};

use super::Work;
use crate::error::S3Error;
use crate::query_api;
use crate::reply::Reply;

/// `Tags.member.1.Key`, `Tags.member.1.Value` and so on.
pub(super) fn read(work: &Work<'_>) -> Result<Tags, S3Error> {
    let mut tags = Tags::new();
    // One more than allowed, which is then refused.
    for number in 1..=TAGS_MAX + 1 {
        let Some(key) = work.get(&format!("Tags.member.{number}.Key")) else { break };
        let value = work.get(&format!("Tags.member.{number}.Value")).unwrap_or_default();
        if tags.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(query_api::invalid("a tag is given twice"));
        }
    }
    Ok(tags)
}

pub(super) async fn tag(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    work.order(Order::Tag { kind, to: work.holder(kind)?, tags: read(work)? }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn untag(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    let keys = query_api::members(work.call.form, "TagKeys");
    work.order(Order::Untag { kind, from: work.holder(kind)?, keys }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn list(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    let tags = match kind {
        Kind::User => &work.user()?.tags,
        _ => &work.find::<Role>("RoleName")?.tags,
    };
    let page = work.page(tags.iter().map(|tag| (tag.0.clone(), tag)))?;
    Ok(work.answer(|writer| {
        page.write(writer, "Tags", |writer, (key, value)| {
            writer.text("Key", key);
            writer.text("Value", value);
        });
    }))
}
