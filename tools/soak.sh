#!/usr/bin/env bash
# Simulated crashes: tools/soak.sh [SEEDS] of each kind, with fresh seeds each day so that CI sees new ones.
set -u
cd "$(dirname "$0")/.." || exit 1
seeds=${1:-1000}
first=$(($(date +%s) / 86400 * 100000))
if cargo run --quiet --locked -p margay-sim --bin sim -- soak --seeds "$seeds" --first "$first"; then
    echo "evidence: simulated crashes: $seeds of $seeds seeds clean, from seed $first on"
    echo "1 passed, 0 failed"
else
    echo "0 passed, 1 failed"
    exit 1
fi
