//! `margay cluster upgrade`: which servers run another version than this program, and which one is to be restarted next.
//!
//! Why:        servers of two versions may run beside each other, one after the other is restarted, and while one is away its copies are.
//! Invariants: U1 a server is named only while all the others run and every segment has its copies.
//!             U2 nothing is restarted here: the operator's system does that.
//! Not here:   what an upgrade changes in the rows (margay_volume::upgrade).

use std::time::Duration;

use margay_env::Env;
use margay_meta::Engine;
use margay_volume::{FORMAT_VERSION, KnownStore, stored_format};
use serde_json::{Value, json};

use super::fail;
use super::status::{Found, find, state_of};
use crate::exit::Failure;

const EXAMPLES: &str = "Examples:
  margay cluster upgrade --metadata postgres://margay@db/margay          # once the new program is installed everywhere
  margay cluster upgrade --wait --metadata postgres://margay@db/margay   # and follow the servers while they are restarted

Run it with the new program. It shows the version of each server, whether both versions may run beside each other, and which server to
restart next; with --wait it goes on until all have the version of this program, and names the next one when the last one is back and
nothing lacks copies.";

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// As servers say it of themselves.
const OWN: &str = concat!("margay ", env!("CARGO_PKG_VERSION"));

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Upgrade {
    /// Go on until all servers have this version
    #[arg(long)]
    wait: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "wait")]
    json: bool,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    Restart(KnownStore),
    /// First this.
    Wait(String),
}

fn next(found: &Found) -> Step {
    let states: Vec<(&KnownStore, &str)> =
        found.stores.iter().map(|store| (store, state_of(store, &found.copies))).collect();
    let old: Vec<&KnownStore> = states
        .iter()
        .filter(|(store, _)| store.address.is_some() && store.program != OWN)
        .map(|(store, _)| *store)
        .collect();
    let away = states.iter().find(|(_, state)| ["not running", "stopped"].contains(state));
    let few = found.segments.too_few(&found.copies);
    match (old.first(), away) {
        (_, Some((store, "stopped"))) => Step::Wait(format!(
            "store {} {} is suspended and does not run: start its server",
            store.number.0, store.host
        )),
        (_, Some((store, _))) => {
            Step::Wait(format!("store {} {} does not run: start its server", store.number.0, store.host))
        }
        (Some(_), None) if few > 0 => Step::Wait(format!("{few} segments have too few copies: servers make them")),
        (Some(store), None) => Step::Restart((*store).clone()),
        (None, None) => Step::Done,
    }
}

/// Whether servers of this program may run beside those that there are.
fn formats(engine: &dyn Engine) -> Result<String, Failure> {
    match stored_format(engine).map_err(fail)? {
        None => Err(Failure::failed("the database has no volume yet".to_owned())),
        Some(FORMAT_VERSION) => {
            Ok(format!("format {FORMAT_VERSION}: servers of both versions may run beside each other"))
        }
        Some(found) if found > FORMAT_VERSION => Err(Failure::failed(format!(
            "the volume has format {found}, and this program ({OWN}) knows formats up to {FORMAT_VERSION}: use a newer one"
        ))),
        Some(found) => Err(Failure::failed(format!(
            "the volume has format {found}, and this program ({OWN}) writes {FORMAT_VERSION}, which the servers that run cannot read: stop all \
             of them, then start them with this program"
        ))),
    }
}

fn show(found: &Found) {
    println!("{:>5}  {:<12} {:<24} HOST", "STORE", "STATE", "VERSION");
    for store in &found.stores {
        let (program, number) = (if store.program.is_empty() { "-" } else { &store.program }, store.number.0);
        println!("{number:>5}  {:<12} {program:<24} {}", state_of(store, &found.copies), store.host);
    }
}

fn say(step: &Step) {
    match step {
        Step::Done => println!("all servers run {OWN}"),
        Step::Wait(what) => println!("before the next one: {what}"),
        Step::Restart(store) => println!(
            "next: restart the server of store {} at {} {} (for example `systemctl restart margay` there)",
            store.number.0,
            store.host,
            store.address.as_deref().unwrap_or_default()
        ),
    }
}

pub(super) fn run(upgrade: &Upgrade, engine: &dyn Engine) -> Result<(), Failure> {
    let compatible = formats(engine)?;
    let found = find(engine)?;
    if upgrade.json {
        let stores: Vec<Value> = found
            .stores
            .iter()
            .map(|store| {
                json!({"store": store.number.0, "state": state_of(store, &found.copies), "host": store.host, "address": store.address,
                    "version": store.program})
            })
            .collect();
        let (restart, wait) = match next(&found) {
            Step::Done => (Value::Null, Value::Null),
            Step::Restart(store) => (json!(store.number.0), Value::Null),
            Step::Wait(what) => (Value::Null, json!(what)),
        };
        println!(
            "{:#}",
            json!({"version": OWN, "format": FORMAT_VERSION, "stores": stores, "restart": restart, "wait": wait})
        );
        return Ok(());
    }
    println!("this program: {OWN}; {compatible}");
    show(&found);
    let mut step = next(&found);
    say(&step);
    let clock = Env::real().clock;
    while upgrade.wait && step != Step::Done {
        clock.sleep(LOOK_EVERY);
        let now = next(&find(engine)?);
        if now != step {
            step = now;
            say(&step);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use margay_segment::StoreNumber;

    use super::*;

    fn store(number: u16, program: &str) -> KnownStore {
        let address = (!program.is_empty()).then(|| format!("h{number}:1"));
        let (host, program) = (format!("h{number}"), program.to_owned());
        KnownStore { number: StoreNumber(number), generation: 1, address, host, program }
    }

    #[test]
    fn one_server_at_a_time_is_named_while_all_run() {
        let mut found = Found {
            stores: vec![store(0, OWN), store(1, "margay 0.0.9"), store(2, "margay 0.0.9")],
            ..Found::default()
        };
        assert_eq!(next(&found), Step::Restart(found.stores[1].clone()));
        found.stores[1] = store(1, "");
        assert!(matches!(next(&found), Step::Wait(what) if what.contains("store 1")));
        found.copies.detached.push(StoreNumber(1));
        assert_eq!(next(&found), Step::Restart(found.stores[2].clone()));
        found.stores[2] = store(2, OWN);
        assert_eq!(next(&found), Step::Done);
    }
}
