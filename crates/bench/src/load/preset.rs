//! Workloads by name: the sizes and keys of LeoFS' published runs.
//!
//! Why:        a figure beside a published one must come from the same objects.
//! Source:     the configurations in LeoFS' notes repository and documentation (leo-project/notes, leofs/docs): sizes are
//!             uniform within a group, keys uniform unless said otherwise, 64 connections, first a load of all keys
//!             (`--mix put=100`), then reads (`get=100`), then 95 % reads and 5 % writes of the same keys.
//! Invariants: a preset gives a thousandth of the published keys, so that it fits a laptop; `--keys` gives them all.

use super::distribution::Distribution;
use super::mix::Mix;
use super::sizes::Sizes;

/// The workload of a run: what a preset gives and options change.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) connections: u64,
    pub(super) sizes: Sizes,
    pub(super) mix: Mix,
    pub(super) keys: u64,
    pub(super) distribution: Distribution,
    pub(super) overwrite: bool,
    pub(super) verify: bool,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            connections: 64,
            sizes: "4k".parse().expect("a size"),
            mix: "get=90,put=10".parse().expect("a mix"),
            keys: 1000,
            distribution: Distribution::Uniform,
            overwrite: false,
            verify: false,
        }
    }
}

/// A published run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// Pictures of 4 to 128 KiB (4 million keys)
    LeofsImage,
    /// Mostly 4 to 256 KiB, up to 10 MiB (3 million keys)
    LeofsImage2,
    /// 128 KiB each (3 million keys)
    #[value(name = "leofs-fix128k")]
    LeofsFix128k,
    /// Half 16 to 64 KiB, half 10 to 15 MiB (40,000 keys)
    #[value(name = "leofs-15m")]
    Leofs15m,
    /// 4 KiB, 80 % reads, 80 % of them of 20 % of the keys (1 million keys)
    LeofsPareto,
    /// 4 to 32 KiB, half reads, every one checked (1 million keys)
    LeofsIntegrity,
}

impl Preset {
    pub(super) fn workload(self) -> Workload {
        let (keys, sizes, mix) = match self {
            Preset::LeofsImage => (4000, "4k-8k:15,8k-16k:25,16k-32k:23,32k-64k:22,64k-128k:15", "get=95,put=5"),
            Preset::LeofsImage2 => {
                (3000, "4k-32k:69,32k-64k:75,64k-128k:95,128k-256k:66,256k-512k:26,512k-1m:4,1m-10m:1", "get=95,put=5")
            }
            Preset::LeofsFix128k => (3000, "128k", "get=95,put=5"),
            // A thousandth would be 40 keys for 64 connections.
            Preset::Leofs15m => (100, "16k-64k:50,10m-15m:50", "get=95,put=5"),
            Preset::LeofsPareto => (1000, "4k", "get=80,put=20"),
            Preset::LeofsIntegrity => (1000, "4k-32k", "get=50,put=50"),
        };
        Workload {
            sizes: sizes.parse().expect("tried by a test"),
            mix: mix.parse().expect("tried by a test"),
            keys,
            distribution: if self == Preset::LeofsPareto { Distribution::Pareto } else { Distribution::Uniform },
            overwrite: true,
            verify: self == Preset::LeofsIntegrity,
            ..Workload::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_preset_is_a_workload() {
        for preset in Preset::value_variants() {
            let workload = preset.workload();
            assert!(workload.keys >= 100 && workload.mix.reads(), "{preset:?}");
        }
        assert!(!Workload::default().overwrite);
    }
}
