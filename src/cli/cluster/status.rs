//! `margay cluster status`: what is wrong and what to do about it, then which store has what.
//!
//! Invariants: T1 what is told is what the rows say: a copy that is being made counts once its row is written.
//! Not here:   changing anything (cluster, node).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use margay_meta::Engine;
use margay_segment::StoreNumber;
use margay_volume::{
    CopiesRecord, Error, KnownSegment, KnownStore, Role, SegmentState, is_referenced, known_stores, read_copies,
    visit_segments_made_by,
};
use serde_json::{Value, json};

use super::{fail, pool};
use crate::exit::Failure;

const NO_GATEWAY: &str = "no server for clients runs, only endpoints: start one without --endpoint-only";

/// What a store has, by the rows.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cli) struct Has {
    pub(in crate::cli) segments: u64,
    /// Of the segments that are written no more.
    pub(in crate::cli) bytes: u64,
    /// That no store has which is not detached.
    pub(in crate::cli) alone: u64,
    /// That other stores may have in part only: their maker was writing them when it was lost, or may be still.
    pub(in crate::cli) unsure: u64,
}

#[derive(Debug, Default)]
pub(in crate::cli) struct Segments {
    pub(in crate::cli) all: u64,
    /// By number of stores that are not detached.
    by_stores: BTreeMap<usize, u64>,
    /// Of detached stores, and not compared yet.
    unsure: u64,
    /// That have copies, all of them in one rack.
    in_one_rack: u64,
    /// Bytes of copies that are missing, of the segments that are written no more.
    pub(in crate::cli) missing_bytes: u64,
    pub(in crate::cli) of_store: BTreeMap<StoreNumber, Has>,
}

impl Segments {
    /// One that nothing refers to needs no copies, and goes with those that it has; of one that has as many as are wanted it is not asked.
    fn count(&mut self, engine: &dyn Engine, known: &KnownSegment, copies: &CopiesRecord) -> Result<(), Error> {
        if known.record.state == SegmentState::Removed {
            return Ok(());
        }
        let has = &known.record.stores;
        let left: Vec<StoreNumber> = has.iter().copied().filter(|store| !copies.detached.contains(store)).collect();
        // Who has a part of it is named too, until the stores that are left have compared what they have.
        let (maker, is_open) = (known.id.made_by(), known.record.state == SegmentState::Open);
        let is_unsure = is_open && copies.detached.contains(&maker);
        let counted = copies.count(left.iter().copied());
        let counted = if is_unsure { counted.min(1) } else { counted };
        if counted != usize::from(copies.copies) && !is_referenced(engine, known.id)? {
            return Ok(());
        }
        let bytes = if let SegmentState::Sealed { len } = known.record.state { len } else { 0 };
        self.all += 1;
        self.unsure += u64::from(is_unsure);
        *self.by_stores.entry(counted).or_default() += 1;
        self.in_one_rack += u64::from(left.len() > 1 && copies.racks_of(left.iter().copied()) == 1);
        self.missing_bytes +=
            bytes * usize::from(copies.copies).saturating_sub(copies.count(left.iter().copied())) as u64;
        for store in has {
            let of_store = self.of_store.entry(*store).or_default();
            of_store.segments += 1;
            of_store.bytes += bytes;
            of_store.alone += u64::from(left.len() == 1 && !copies.detached.contains(store));
            // With one store waited for, the maker alone has what it acknowledged last.
            let only_maker_is_sure = is_open && copies.write < 2 && *store == maker;
            let may_be_alone = is_unsure || only_maker_is_sure;
            of_store.unsure += u64::from(left.len() > 1 && left.contains(store) && may_be_alone);
        }
        Ok(())
    }

    pub(in crate::cli) fn of(&self, store: StoreNumber) -> Has {
        self.of_store.get(&store).copied().unwrap_or_default()
    }

    pub(in crate::cli) fn too_few(&self, copies: &CopiesRecord) -> u64 {
        self.by_stores.range(..usize::from(copies.copies)).map(|(_, count)| count).sum()
    }

    fn too_many(&self, copies: &CopiesRecord) -> u64 {
        self.by_stores.range(usize::from(copies.copies) + 1..).map(|(_, count)| count).sum()
    }

    fn lost(&self) -> u64 {
        self.by_stores.get(&0).copied().unwrap_or_default()
    }
}

/// All that the rows say of copies.
#[derive(Debug, Default)]
pub(in crate::cli) struct Found {
    pub(in crate::cli) copies: CopiesRecord,
    pub(in crate::cli) stores: Vec<KnownStore>,
    pub(in crate::cli) segments: Segments,
}

pub(in crate::cli) fn find(engine: &dyn Engine) -> Result<Found, Failure> {
    let copies = read_copies(engine).map_err(fail)?;
    let stores = known_stores(engine).map_err(fail)?;
    let mut segments = Segments::default();
    for store in &stores {
        let mut count = |known: KnownSegment| {
            segments.count(engine, &known, &copies)?;
            Ok(ControlFlow::Continue(()))
        };
        visit_segments_made_by(engine, store.number, &mut count).map_err(fail)?;
    }
    Ok(Found { copies, stores, segments })
}

pub(in crate::cli) fn state_of(store: &KnownStore, copies: &CopiesRecord) -> &'static str {
    let is_suspended = copies.suspended.contains(&store.number);
    match (copies.detached.contains(&store.number), &store.address) {
        (true, _) => "detached",
        _ if copies.is_pool(store.number) => "pool",
        (false, Some(_)) if is_suspended => "suspended",
        (false, Some(_)) => "running",
        (false, None) if is_suspended => "stopped",
        (false, None) => "not running",
    }
}

/// What the server of a store is for; most are for clients and copies.
pub(in crate::cli) fn role_of(store: StoreNumber, copies: &CopiesRecord) -> &'static str {
    let of_server = || copies.role_of.get(&store).map_or("both", |role| role.name());
    if copies.is_pool(store) { "pool" } else { of_server() }
}

fn address_of(store: &KnownStore, copies: &CopiesRecord) -> Option<String> {
    let of_pool = || copies.pools.get(&store.number).map(pool::address);
    store.address.clone().or_else(of_pool)
}

/// The stores that copies of one segment can be at now: those that get copies, and with them the own one of a server that gets none.
pub(in crate::cli) fn places(stores: &[KnownStore], copies: &CopiesRecord) -> Vec<StoreNumber> {
    let running = stores.iter().filter(|store| state_of(store, copies) == "running").map(|store| store.number);
    let (takers, gateways): (Vec<_>, Vec<_>) = running.partition(|store| copies.takes_copies(*store));
    takers.into_iter().chain(gateways.into_iter().take(1)).collect()
}

impl Found {
    /// Stores that get copies of what is written.
    pub(in crate::cli) fn running(&self) -> Vec<StoreNumber> {
        let running = self.stores.iter().filter(|store| state_of(store, &self.copies) == "running");
        running.map(|store| store.number).filter(|store| self.copies.takes_copies(*store)).collect()
    }

    pub(in crate::cli) fn places(&self) -> Vec<StoreNumber> {
        places(&self.stores, &self.copies)
    }

    /// Nobody can write or read while only endpoints run.
    fn lacks_gateway(&self) -> bool {
        let mut running = self.stores.iter().filter(|store| store.address.is_some()).peekable();
        running.peek().is_some() && running.all(|store| self.copies.role_of.get(&store.number) == Some(&Role::Endpoint))
    }

    fn unsure(&self) -> Option<String> {
        let unsure = self.segments.unsure;
        let text = format!(
            "{unsure} segments were being written when their store was lost: the stores that have a part compare what they have; start those that do not run"
        );
        (unsure > 0).then_some(text)
    }

    /// What is wrong, the worst first, each with what to do.
    pub(in crate::cli) fn problems(&self) -> Vec<String> {
        let (copies, segments) = (&self.copies, &self.segments);
        let mut problems = Vec::new();
        let mut tell = |is_so: bool, text: String| {
            if is_so {
                problems.push(text)
            }
        };
        let running = self.places();
        let (lost, few) = (segments.lost(), segments.too_few(copies));
        tell(
            lost > 0,
            format!(
                "{lost} segments are LOST: no store has them that is not detached; `margay node detach STORE --undo` if one has come back"
            ),
        );
        let (write, racks) = (usize::from(copies.write), usize::from(copies.racks));
        tell(
            running.len() < write,
            format!(
                "writes are REFUSED: they wait for {write} servers, and {} run: start more, or `margay cluster set --write {}`",
                running.len(),
                running.len().max(1)
            ),
        );
        tell(self.lacks_gateway(), NO_GATEWAY.to_owned());
        let in_racks = copies.racks_of(running.iter().copied());
        tell(
            running.len() >= write && in_racks < racks,
            format!(
                "writes are REFUSED: they wait for {racks} racks, and servers run in {in_racks}: start one elsewhere, or `margay cluster set --racks {}`",
                in_racks.max(1)
            ),
        );
        for store in &self.stores {
            let has = segments.of(store.number);
            let (number, host, alone) = (store.number.0, &store.host, has.alone);
            let nowhere = if alone > 0 {
                format!("{alone} segments are nowhere else and cannot be read; ")
            } else {
                String::new()
            };
            tell(
                state_of(store, copies) == "not running" && has.segments > 0,
                format!(
                    "store {number} {host} is not running: {nowhere}start its server; `margay node suspend {number}` if it is to be away for a while, `margay node detach {number}` if its disk is lost"
                ),
            );
        }
        let what = if running.len() < usize::from(copies.copies) {
            format!("only {} servers run that get copies: start more", running.len())
        } else {
            "running servers make them".to_owned()
        };
        tell(few > 0 && few > lost, format!("{} segments have too few copies: {what}", few - lost));
        let unsure = self.unsure();
        tell(unsure.is_some(), unsure.unwrap_or_default());
        let near = segments.in_one_rack;
        let what =
            if in_racks < 2 { "start a server in another one" } else { "running servers make one in another rack" };
        let has_racks = !copies.rack_of.is_empty();
        tell(has_racks && near > 0, format!("{near} segments have all of their copies in one rack: {what}"));
        let many = segments.too_many(copies);
        tell(many > 0, format!("{many} segments have too many copies: running servers remove them"));
        tell(
            copies.rebalances,
            "copies are being moved so that stores are evenly filled: `margay node rebalance` shows how far it is"
                .to_owned(),
        );
        problems
    }

    fn json(&self) -> Value {
        let Found { copies, stores, segments } = self;
        let stores: Vec<Value> = stores
            .iter()
            .map(|store| {
                let has = segments.of(store.number);
                json!({
                    "store": store.number.0,
                    "state": state_of(store, copies),
                    "role": role_of(store.number, copies),
                    "rack": copies.rack_of.get(&store.number),
                    "address": address_of(store, copies),
                    "host": store.host,
                    "segments": has.segments,
                    "bytes": has.bytes,
                    "segments_nowhere_else": has.alone,
                })
            })
            .collect();
        json!({
            "problems": self.problems(),
            "copies": copies.copies,
            "write": copies.write,
            "racks": copies.racks,
            "segments": segments.all,
            "segments_with_too_few_copies": segments.too_few(copies),
            "segments_with_too_many_copies": segments.too_many(copies),
            "segments_in_one_rack": segments.in_one_rack,
            "segments_lost": segments.lost(),
            "segments_unsure": segments.unsure,
            "missing_bytes": segments.missing_bytes,
            "rebalances": copies.rebalances,
            "stores": stores,
        })
    }
}

pub(super) fn numbers(copies: &CopiesRecord) -> String {
    let racks = if copies.racks > 1 { format!(", in {} racks", copies.racks) } else { String::new() };
    format!("copies {}, of which a write waits for {}{racks}", copies.copies, copies.write)
}

pub(super) fn show(engine: &dyn Engine, as_json: bool) -> Result<(), Failure> {
    let found = find(engine)?;
    if as_json {
        println!("{:#}", found.json());
        return Ok(());
    }
    let problems = found.problems();
    problems.iter().for_each(|problem| println!("! {problem}"));
    println!("{}", numbers(&found.copies));
    match found.segments.too_few(&found.copies) {
        0 => println!("segments {}, all with their copies", found.segments.all),
        few => println!("segments {}, {few} with too few copies", found.segments.all),
    }
    show_stores(&found);
    Ok(())
}

pub(in crate::cli) fn show_stores(found: &Found) {
    let Found { copies, stores, segments } = found;
    let racks: BTreeSet<&String> = copies.rack_of.values().collect();
    let width = racks.iter().map(|rack| rack.len()).max().unwrap_or_default().max(4);
    println!(
        "{:>5}  {:<12} {:<8} {:<width$} {:>9} {:>10} {:>13}  ADDRESS",
        "STORE", "STATE", "ROLE", "RACK", "SEGMENTS", "MiB", "NOWHERE ELSE"
    );
    for store in stores {
        let has = segments.of(store.number);
        let (state, address) = (state_of(store, copies), address_of(store, copies).unwrap_or_else(|| "-".to_owned()));
        let rack = copies.rack_of.get(&store.number).map_or("-", String::as_str);
        println!(
            "{:>5}  {state:<12} {:<8} {rack:<width$} {:>9} {:>10} {:>13}  {address} {}",
            store.number.0,
            role_of(store.number, copies),
            has.segments,
            has.bytes >> 20,
            has.alone,
            store.host
        );
    }
}
