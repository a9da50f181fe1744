//! RenameObject: O(1), and with keys that end in `/` a whole directory at once (an extension, in any bucket).

use std::collections::VecDeque;

use http::StatusCode;
use parking_lot::Mutex;

use super::Call;
use crate::error::S3Error;
use crate::headers::condition::write_condition;
use crate::headers::copy_source::parse_rename_source;
use crate::headers::text;
use crate::reply::Reply;

/// Renames remembered by client token.
const TOKENS_MAX: usize = 1024;
/// Maximum size of a token, in bytes.
const TOKEN_BYTES_MAX: usize = 64;
const TOKEN: &str = "x-amz-client-token";
const SOURCE: &str = "x-amz-rename-source";

/// Successful renames, so that a repeated request with the same token succeeds again.
///
/// Not durable: after a restart a repeated rename reports that its source does not exist.
#[derive(Debug, Default)]
pub(crate) struct RecentRenames {
    done: Mutex<VecDeque<Done>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Done {
    token: String,
    bucket: String,
    from: String,
    to: String,
}

impl RecentRenames {
    /// Whether this rename was done; an error when the token belongs to another one.
    fn find(&self, wanted: &Done) -> Result<bool, S3Error> {
        let done = self.done.lock();
        match done.iter().find(|done| done.token == wanted.token) {
            None => Ok(false),
            Some(same) if same == wanted => Ok(true),
            Some(_) => Err(S3Error::argument(TOKEN, &wanted.token, "the token was used for another rename")),
        }
    }

    fn remember(&self, done: Done) {
        let mut all = self.done.lock();
        if all.len() == TOKENS_MAX {
            all.pop_front();
        }
        all.push_back(done);
    }
}

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let source =
        text(call.headers, SOURCE)?.ok_or_else(|| S3Error::argument(SOURCE, "", "x-amz-rename-source is required"))?;
    let from = parse_rename_source(call.bucket(), source)?;
    if from.ends_with('/') != call.key().ends_with('/') {
        return Err(S3Error::argument(SOURCE, source, "a directory is renamed to a directory: both keys end in /"));
    }
    let condition = write_condition(call.headers)?;
    let token = text(call.headers, TOKEN)?.map(str::to_owned);
    let done = token.map(|token| Done {
        token,
        bucket: call.bucket().to_owned(),
        from: from.clone(),
        to: call.key().to_owned(),
    });
    if let Some(done) = &done {
        if done.token.is_empty() || done.token.len() > TOKEN_BYTES_MAX {
            return Err(S3Error::argument(TOKEN, &done.token, "a token has 1 to 64 bytes"));
        }
        if call.renames.find(done)? {
            return Ok(Reply::empty(StatusCode::OK));
        }
    }
    call.view().rename(call.bucket(), &from, call.key(), &condition).await?;
    if let Some(done) = done {
        call.renames.remember(done);
    }
    Ok(Reply::empty(StatusCode::OK))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(token: &str, to: &str) -> Done {
        Done { token: token.to_owned(), bucket: "b".to_owned(), from: "a".to_owned(), to: to.to_owned() }
    }

    #[test]
    fn a_token_stands_for_one_rename() {
        let renames = RecentRenames::default();
        assert!(!renames.find(&done("t", "x")).unwrap());
        renames.remember(done("t", "x"));
        assert!(renames.find(&done("t", "x")).unwrap());
        assert!(renames.find(&done("t", "y")).is_err());
        for number in 0..TOKENS_MAX {
            renames.remember(done(&number.to_string(), "x"));
        }
        assert!(!renames.find(&done("t", "x")).unwrap());
        assert_eq!(renames.done.lock().len(), TOKENS_MAX);
    }
}
