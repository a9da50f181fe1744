//! Flipped bits: whatever bit of a data directory is wrong, an answer is right or an error that tells of damage.
//!
//! Why:        silent damage is the one fault that a user cannot see; each place that is not under a checksum shows
//!             here as a wrong value, an absence or a shorter listing.
//! Layout:     `world::flips` makes the directory and asks the questions. The short run is a test; the long one is
//!             `MARGAY_FLIPS=10000 MARGAY_FLIPS_RESULTS=FILE cargo test --release -p margay-volume --test flips -- --ignored`:
//!             FILE has a line for each flip, and a run goes on behind those that it finds there.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "the results of the long run are a file of the host")]

mod world;

use std::io::Write as _;

use world::flips::{Directory, Found};

/// Flips of the short run, for each way in which the directory was left.
const SHORT_FLIPS: u64 = 120;

/// One flip; the line says what it did. The error is a broken promise.
fn one(directory: &Directory, number: u64) -> Result<String, String> {
    let flip = directory.choose(number);
    let told = directory.ask_after(&flip).map_err(|error| format!("flip {number} ({flip:?}): {error}"))?;
    if flip.named && told.found == Found::Nowhere {
        return Err(format!("flip {number} ({flip:?}): neither the opening nor fsck nor scrub found it"));
    }
    Ok(format!("{number} {} {} bit {}: {:?}, {} errors", flip.path, flip.offset, flip.bit, told.found, told.errors))
}

#[test]
fn flips_after_a_clean_stop() {
    let directory = Directory::make(true);
    for number in 0..SHORT_FLIPS {
        one(&directory, number).unwrap();
    }
}

#[test]
fn flips_after_a_kill() {
    let directory = Directory::make(false);
    for number in 0..SHORT_FLIPS {
        one(&directory, number).unwrap();
    }
}

#[test]
#[ignore = "takes long; its command is above"]
fn many_flips() {
    let flips: u64 = std::env::var("MARGAY_FLIPS").map_or(10_000, |text| text.parse().unwrap());
    let results = std::env::var("MARGAY_FLIPS_RESULTS").unwrap_or_else(|_| "flips.txt".into());
    let done = std::fs::read_to_string(&results).unwrap_or_default().lines().count() as u64;
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&results).unwrap();
    let directories = [Directory::make(true), Directory::make(false)];
    let mut broken = 0;
    for number in done..flips {
        let line = one(&directories[(number % 2) as usize], number).unwrap_or_else(|error| {
            broken += 1;
            format!("BROKEN {error}")
        });
        writeln!(file, "{}", line.replace('\n', " ")).unwrap();
    }
    let all = std::fs::read_to_string(&results).unwrap();
    let broken_before = all.lines().filter(|line| line.starts_with("BROKEN")).count();
    println!(
        "{} flips, {broken_before} broke a promise ({broken} in this run); each is a line of {results}",
        all.lines().count()
    );
    assert_eq!(broken_before, 0);
}
