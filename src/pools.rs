//! Pools of a shared volume: buckets of other stores, opened with the keys that this server has.
//!
//! Invariants: P1 rows say where a pool is, never with which keys: each server looks for its own where AWS's tools do, and renews them.
//! Not here:   what is put there and when (margay-cluster), the command (`cli::cluster`).

use std::path::PathBuf;

use margay_client::KeyChain;
use margay_client::credentials::{Places, Variables};
use margay_client::target::Addressing;
use margay_client::upstream::{Limits, Upstream};
use margay_cluster::PoolBuckets;
use margay_env::Env;
use margay_volume::Pool;

use crate::backup_location::BucketLocation;

/// Of one pool.
const LIMITS: Limits = Limits { requests_max: 32, bytes_max: 64 << 20 };

/// Keys from the environment, AWS's files, or the machine's role.
#[derive(Debug)]
pub struct OwnKeys {
    env: Env,
    variables: Variables,
}

impl OwnKeys {
    pub fn of_process(env: &Env) -> OwnKeys {
        OwnKeys { env: env.clone(), variables: Variables::of_process(env) }
    }
}

impl PoolBuckets for OwnKeys {
    fn open(&self, pool: &Pool) -> Result<Upstream, String> {
        let keys = Places { variables: self.variables.clone(), profile: None };
        let place = BucketLocation {
            endpoint: pool.endpoint.clone(),
            region: pool.region.clone(),
            addressing: if pool.is_virtual { Addressing::Virtual } else { Addressing::Path },
            bucket: pool.bucket.clone(),
            prefix: pool.prefix.clone(),
            keys: KeyChain::looked_for(&self.env, keys),
            ca: self.variables.get("AWS_CA_BUNDLE").map(PathBuf::from),
        };
        Ok(Upstream::new(place.target()?, &pool.bucket, LIMITS))
    }
}
