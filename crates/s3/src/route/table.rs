//! Generates the table in the docs: every operation, header and query parameter of AWS, and its treatment here.
//!
//! Why: the page is generated from the lists that the code uses at run time, so it cannot become stale.

use std::fmt::Write as _;

use super::beyond::{self, BEYOND, Kind};
use super::model::OPERATIONS;
use super::operation::Operation;
use super::policy::{Accept, Policy, policy};

const HEAD: &str = "# S3 operations

Made from `crates/s3/src/route` by `MARGAY_WRITE_DOCS=1 cargo test -p margay-s3 --test operations_table`; a test compares it.

AWS knows {all} operations; {done} are implemented. Every other operation, and every header or query parameter that is not
listed as taken, is answered `501 NotImplemented` with its name. Values in parentheses are the only ones taken.
";

/// Names of the operations that are implemented.
pub fn implemented() -> Vec<&'static str> {
    OPERATIONS.iter().filter(|operation| policy(operation).is_some()).map(|operation| operation.name).collect()
}

/// The page as Markdown.
pub fn markdown() -> String {
    let done = OPERATIONS.iter().filter(|operation| policy(operation).is_some()).count();
    let mut page = HEAD.replace("{all}", &OPERATIONS.len().to_string()).replace("{done}", &done.to_string());
    page.push_str("## Taken beyond the model\n\n| operations | name | why |\n|---|---|---|\n");
    for own in BEYOND {
        let star = if own.name.ends_with('-') { "*" } else { "" };
        let question = if own.kind == Kind::Query { "?" } else { "" };
        let shown = with_values(&format!("`{question}{}{star}`", own.name), own.accept);
        writeln!(page, "| {} | {shown} | {} |", own.of.text(), own.why).expect("a String takes every write");
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
        sort(&format!("`?{name}`"), policy.query_parameter(name), &mut taken, &mut refused);
    }
    for name in operation.headers.iter().chain(operation.prefixes) {
        let shown = if name.ends_with('-') { format!("`{name}*`") } else { format!("`{name}`") };
        let accept = policy.header(name).or_else(|| implied(operation, policy, name));
        sort(&shown, accept, &mut taken, &mut refused);
    }
    format!("| {} | implemented | {} | {} |\n", operation.name, taken.join(", "), refused.join(", "))
}

/// Accepted by the layers below every operation.
fn implied(operation: &Operation, policy: &Policy, name: &str) -> Option<Accept> {
    beyond::accepts(operation, policy, Kind::Header, name).find(|accept| *accept == Accept::Any)
}

fn sort(shown: &str, accept: Option<Accept>, taken: &mut Vec<String>, refused: &mut Vec<String>) {
    match accept {
        Some(accept) => taken.push(with_values(shown, accept)),
        None => refused.push(shown.to_owned()),
    }
}

fn with_values(shown: &str, accept: Accept) -> String {
    match accept {
        Accept::Any => shown.to_owned(),
        Accept::Only([""]) => format!("{shown} (empty)"),
        Accept::Only(values) => format!("{shown} ({})", values.join(", ")),
    }
}
