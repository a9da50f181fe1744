//! A few dozen seeds of each layer, and the proof that the checkers can fail.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

use margay_sim::machine::Lies;
use margay_sim::soak::{Layer, replay_command, soak};

const HONEST: Lies = Lies { bytes: false, names: false, notes: false };
/// Seeds within which a lying disk must be found out.
const CANARY_SEEDS: u64 = 50;

fn clean(layer: Layer, seeds: u64) {
    let report = soak(layer, (1, seeds), (2, 1), HONEST, &mut |_, _| {});
    for (seed, failure) in &report.failed {
        println!("seed {seed}: {failure}\n  replay: {}", replay_command(layer, *seed));
    }
    assert!(report.failed.is_empty());
    assert!(report.tally.acknowledged > seeds, "hardly anything was acknowledged");
}

fn found_out(layer: Layer, lies: Lies, seeds: u64) {
    let report = soak(layer, (1, seeds), (2, 1), lies, &mut |_, _| {});
    assert!(!report.failed.is_empty(), "{seeds} seeds saw nothing wrong with {lies:?}");
}

#[test]
fn the_engine_survives() {
    clean(Layer::Engine, 40);
}

#[test]
fn canary_the_engine_over_a_disk_that_forgets_bytes() {
    found_out(Layer::Engine, Lies { bytes: true, ..HONEST }, CANARY_SEEDS);
}

#[test]
fn canary_the_engine_over_a_disk_that_forgets_names() {
    found_out(Layer::Engine, Lies { names: true, ..HONEST }, CANARY_SEEDS);
}

#[test]
fn the_volume_survives() {
    clean(Layer::Volume, 40);
}

#[test]
fn canary_the_volume_over_a_disk_that_forgets() {
    found_out(Layer::Volume, Lies { bytes: true, ..HONEST }, CANARY_SEEDS);
    found_out(Layer::Volume, Lies { names: true, ..HONEST }, CANARY_SEEDS);
}

#[test]
fn the_server_survives() {
    clean(Layer::Server, 25);
}

#[test]
fn canary_the_server_over_a_disk_that_forgets() {
    found_out(Layer::Server, Lies { bytes: true, ..HONEST }, CANARY_SEEDS);
    found_out(Layer::Server, Lies { names: true, ..HONEST }, CANARY_SEEDS);
}

/// Without the note a life after a failed sync believes the cache, and the next power cut shows it.
#[test]
fn canary_a_process_that_does_not_know_of_the_failed_sync_before_it() {
    found_out(Layer::Engine, Lies { notes: true, ..HONEST }, 400);
}
