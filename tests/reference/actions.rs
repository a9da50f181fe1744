//! docs/reference/admin-actions.md: every action that a policy can allow for administration, and what is asked for.

use std::collections::BTreeMap;
use std::fmt::Write;

use margay::administration::{AdminWork, ORDERS, PREFIX, Reach, WORKS};

use super::{WRITTEN, expect_page};

const HEAD: &str = "What a policy must allow for the commands of administration by `--endpoint URL`. What each is for, examples and advice:
[administration.md](../administration.md#rights). The root keys need none of it.

The resource of an action on a bucket is `arn:aws:s3:::BUCKET`, that of any other `arn:aws:margay:::server`. Actions
*from the socket* work on the server's own machine only: they are done for whoever may open the socket in the data directory, and no policy is
asked.
";

/// A line of a request, for each action.
fn asked(work: &AdminWork) -> Vec<(&'static str, String)> {
    let path = format!("{} {PREFIX}{}", work.method, work.path);
    match work.fixed_action() {
        Some(action) => vec![(action, format!("`{path}`"))],
        None => ORDERS.iter().map(|(order, action)| (*action, format!("`{path}`, order `{order}`"))).collect(),
    }
}

fn page() -> String {
    let mut out = format!(
        "# Actions of administration\n\n{WRITTEN}\n\n{HEAD}\n| action | resource | from | request |\n| --- | --- | --- | --- |\n"
    );
    let mut rows: BTreeMap<&str, (&AdminWork, Vec<String>)> = BTreeMap::new();
    for work in WORKS {
        for (action, request) in asked(work) {
            rows.entry(action).or_insert_with(|| (work, Vec::new())).1.push(request);
        }
    }
    for (action, (work, requests)) in &rows {
        let resource = if work.is_of_bucket() { "the bucket" } else { "the server" };
        let from = if work.reach == Reach::Anywhere { "anywhere" } else { "the socket" };
        let requests = requests.join("; ");
        writeln!(out, "| `{action}` | {resource} | {from} | {requests} |").unwrap();
    }
    out
}

#[test]
fn the_actions_are_those_of_the_program() {
    let page = page();
    for part in
        ["| `admin:Scrub` | the server | anywhere |", "order `create-user`", "| `admin:SetQuota` | the bucket |"]
    {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
    expect_page("admin-actions.md", &page);
}
