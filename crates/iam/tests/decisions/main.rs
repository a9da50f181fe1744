//! More than two hundred decisions, each a table row: who does what to which resource in which context, and which
//! statement decides.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod across_accounts;
mod conditions;
mod matching;
mod table;

#[test]
fn the_table_has_at_least_two_hundred_decisions() {
    let rows = matching::run() + conditions::run() + across_accounts::run();
    assert!(rows >= 200, "{rows} decisions");
    println!("{rows} decisions");
}
