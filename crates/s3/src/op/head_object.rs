//! HeadObject.

use super::Call;
use super::get_object::{add_part_checksum, describe, not_modified, select};
use crate::error::S3Error;
use crate::headers::condition::read_condition;
use crate::headers::version;
use crate::op::encryption::customer::{self, Customer};
use crate::op::encryption::{self, Encryption};
use crate::op::object_tagging;
use crate::reply::Reply;
use crate::stream::S3Body;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let (condition, version) = (read_condition(call.headers, "")?, version::asked(call.query)?);
    encryption::refuse_on_read(call.headers)?;
    let given = Customer::of(call, customer::OWN)?;
    let info = match call.view().head_version(call.bucket(), call.key(), version, &condition).await {
        Ok(info) => info,
        Err(error) => return Err(not_modified(call, error).await),
    };
    let encryption = Encryption::of_object(call, &info, given)?;
    let selection = select(call, &info)?;
    let (status, mut headers) = describe(call, &info, &selection)?;
    add_part_checksum(call, &info, &selection, &mut headers).await?;
    encryption::tell(encryption.as_ref(), &mut headers);
    object_tagging::tell(call, &info.documents, &mut headers).await?;
    call.add_expiration(&mut headers, (info.size, info.modified), &info.documents).await?;
    Ok(Reply { status, headers, body: S3Body::empty() })
}
