//! Finds the operation of a request, or refuses it and names what is not implemented.
//!
//! Why:        silently ignoring a header breaks a promise: an accepted but ignored encryption header leaves plain text
//!             on the disk. So everything that AWS knows is implemented or refused by name.
//! Invariants: R1 every operation of the model is found by its own request.  R2 only entries of `policy` and `beyond`
//!                are accepted.
//! Not here:   operations (op), signatures (auth).

pub(crate) mod beyond;
pub(crate) mod model;
pub(crate) mod operation;
pub(crate) mod policy;
pub(crate) mod query;
pub(crate) mod refuse;
pub mod table;
pub(crate) mod target;

use http::HeaderMap;

use self::operation::{Method, Operation, Scope};
use self::query::Query;
use crate::error::{Code, S3Error};

/// An operation of the model.
pub(crate) fn named(name: &'static str) -> &'static Operation {
    let found = model::OPERATIONS.iter().find(|operation| operation.name == name);
    found.expect("only names of the model are asked for")
}

/// Finds the operation of a request; the method is one of S3's.
pub(crate) fn find(
    method: Method,
    scope: Scope,
    query: &Query,
    headers: &HeaderMap,
) -> Result<&'static Operation, S3Error> {
    let fits = |operation: &&Operation| {
        operation.method == method
            && operation.scope == scope
            && operation
                .fixed_query
                .iter()
                .all(|(name, wanted)| query.get(name).is_some_and(|value| wanted.is_empty() || value == *wanted))
            && operation.required_query.iter().all(|name| query.has(name))
            && operation.required_headers.iter().all(|name| headers.contains_key(*name))
    };
    let mut best: Option<&'static Operation> = None;
    for operation in model::OPERATIONS.iter().filter(fits) {
        // Ties go to the first by name: ListBuckets before ListDirectoryBuckets.
        if best.is_none_or(|best| operation.conditions() > best.conditions()) {
            best = Some(operation);
        }
    }
    best.ok_or_else(|| Code::MethodNotAllowed.into())
}

/// Whether a request is PostObject, a browser's form, which is documented outside the model.
pub(crate) fn is_form_upload(method: Method, scope: Scope, query: &Query) -> bool {
    method == Method::Post && scope == Scope::Bucket && find(method, scope, query, &HeaderMap::new()).is_err()
}

/// Whether S3 allows this bucket name.
pub fn fits_bucket_name(name: &str) -> bool {
    target::check_bucket_name(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: Method, scope: Scope, query: &str, headers: &[(&'static str, &str)]) -> &'static str {
        let query = Query::parse(query).unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap()));
        find(method, scope, &query, &headers.collect()).unwrap().name
    }

    #[test]
    fn every_operation_is_found_by_its_own_request() {
        for operation in &model::OPERATIONS {
            let mut query: Vec<String> =
                operation.fixed_query.iter().map(|(name, value)| format!("{name}={value}")).collect();
            query.extend(operation.required_query.iter().map(|name| format!("{name}=1")));
            let headers: Vec<_> = operation.required_headers.iter().map(|name| (*name, "x")).collect();
            let name = found(operation.method, operation.scope, &query.join("&"), &headers);
            // These differ from others only by endpoint or path.
            let expected = match operation.name {
                "ListDirectoryBuckets" => "ListBuckets",
                other => other,
            };
            assert_eq!(name, expected);
        }
    }

    /// Otherwise the holder of a Version 2 URL could turn it into another operation.
    #[test]
    fn version_2_signatures_cover_what_selects_an_operation() {
        for operation in &model::OPERATIONS {
            for name in operation.fixed_query.iter().map(|(name, _)| name).chain(operation.required_query) {
                // Both forms of a list read the same; `id` distinguishes one analytics setting from all.
                let covered = crate::auth::v2::SUBRESOURCES.binary_search(name).is_ok();
                assert!(covered || ["id", "list-type"].contains(name), "{name} of {}", operation.name);
            }
        }
        assert!(crate::auth::v2::SUBRESOURCES.is_sorted());
    }

    #[test]
    fn the_most_specific_operation_wins() {
        use {Method::*, Scope::*};
        assert_eq!(found(Get, Bucket, "prefix=a", &[]), "ListObjects");
        assert_eq!(found(Get, Bucket, "list-type=2&prefix=a", &[]), "ListObjectsV2");
        assert_eq!(found(Get, Bucket, "analytics&id=1", &[]), "GetBucketAnalyticsConfiguration");
        assert_eq!(found(Get, Bucket, "analytics", &[]), "ListBucketAnalyticsConfigurations");
        assert_eq!(found(Put, Object, "", &[]), "PutObject");
        assert_eq!(found(Put, Object, "", &[("x-amz-copy-source", "/a/b")]), "CopyObject");
        assert_eq!(found(Put, Object, "partNumber=1&uploadId=2", &[]), "UploadPart");
        assert_eq!(found(Put, Object, "partNumber=1&uploadId=2", &[("x-amz-copy-source", "/a/b")]), "UploadPartCopy");
        assert_eq!(found(Get, Object, "uploadId=2", &[]), "ListParts");
    }

    #[test]
    fn what_is_no_operation_is_refused() {
        let code = |method, scope| find(method, scope, &Query::default(), &HeaderMap::new()).unwrap_err().code;
        assert_eq!(code(Method::Post, Scope::Bucket), Code::MethodNotAllowed);
        assert!(is_form_upload(Method::Post, Scope::Bucket, &Query::default()));
        assert!(!is_form_upload(Method::Post, Scope::Bucket, &Query::parse("delete").unwrap()));
        assert!(!is_form_upload(Method::Post, Scope::Object, &Query::default()));
        assert_eq!(code(Method::Delete, Scope::Service), Code::MethodNotAllowed);
        assert_eq!(code(Method::Post, Scope::Object), Code::MethodNotAllowed);
    }
}
