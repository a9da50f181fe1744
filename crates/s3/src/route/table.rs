//! The table in the docs: every operation, header and query parameter that AWS knows, and what happens to it here.
//!
//! Why: the page is made from the same lists that decide at run time, so it cannot drift.

use std::fmt::Write as _;

use super::model::OPERATIONS;
use super::operation::Operation;
use super::policy::{Accept, EXTENSIONS, Policy, policy};
use super::refuse::{HARMLESS, HARMLESS_QUERY};

const HEAD: &str = "# S3 operations

Made from `crates/s3/src/route` by `MARGAY_WRITE_DOCS=1 cargo test -p margay-s3 --test operations_table`; a test compares it.

AWS knows {all} operations; {done} are implemented. Every other operation, and every header or query parameter that is not
listed as taken, is answered `501 NotImplemented` with its name. Values in parentheses are the only ones taken.
Payload checksums (`content-md5`, `x-amz-checksum-crc32`, `-crc32c`, `-crc64nvme`, `-sha1`, `-sha256`) are compared by every
operation that reads a body.

";

/// Names of the operations that are implemented.
pub fn implemented() -> Vec<&'static str> {
    OPERATIONS.iter().filter(|operation| policy(operation).is_some()).map(|operation| operation.name).collect()
}

/// The page as Markdown.
pub fn markdown() -> String {
    let done = OPERATIONS.iter().filter(|operation| policy(operation).is_some()).count();
    let mut page = HEAD.replace("{all}", &OPERATIONS.len().to_string()).replace("{done}", &done.to_string());
    page.push_str("## Taken by every operation\n\n| name | why |\n|---|---|\n");
    for (name, why) in HARMLESS.iter().chain(HARMLESS_QUERY) {
        let star = if name.ends_with('-') { "*" } else { "" };
        writeln!(page, "| `{name}{star}` | {why} |").expect("a String takes every write");
    }
    page.push_str("\n## Beyond the model\n\n| operation | header | why |\n|---|---|---|\n");
    for (operation, header, why) in EXTENSIONS {
        writeln!(page, "| {operation} | `{header}` | {why} |").expect("a String takes every write");
    }
    page.push_str("\n## Operations\n\n| operation | | taken | answered 501 |\n|---|---|---|---|\n");
    for operation in &OPERATIONS {
        page.push_str(&row(operation, policy(operation)));
    }
    page
}

fn row(operation: &Operation, policy: Option<&Policy>) -> String {
    let Some(policy) = policy else { return format!("| {} | 501 | | |\n", operation.name) };
    let mut taken = Vec::new();
    let mut refused = Vec::new();
    for name in operation.query {
        sort(name, &format!("`?{name}`"), policy.query_parameter(name), &mut taken, &mut refused);
    }
    for name in operation.headers.iter().chain(operation.prefixes) {
        let shown = if name.ends_with('-') { format!("`{name}*`") } else { format!("`{name}`") };
        sort(name, &shown, policy.header(name).or_else(|| implied(policy, name)), &mut taken, &mut refused);
    }
    format!("| {} | implemented | {} | {} |\n", operation.name, taken.join(", "), refused.join(", "))
}

/// Taken by the layers below every operation.
fn implied(policy: &Policy, name: &str) -> Option<Accept> {
    let below = HARMLESS.iter().any(|(own, _)| *own == name) || (policy.body && name == "content-md5");
    (below || name.starts_with("x-amz-sdk-")).then_some(Accept::Any)
}

fn sort(name: &str, shown: &str, accept: Option<Accept>, taken: &mut Vec<String>, refused: &mut Vec<String>) {
    assert!(!name.is_empty(), "the model has no empty names");
    match accept {
        Some(Accept::Any) => taken.push(shown.to_owned()),
        Some(Accept::Only(values)) => taken.push(format!("{shown} ({})", values.join(", "))),
        None => refused.push(shown.to_owned()),
    }
}
