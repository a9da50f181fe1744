#!/usr/bin/env bash
# Simulated crashes: tools/soak.sh [SEEDS [FIRST]] of each kind, from seed FIRST on (1): the same ones each time, so that a
# test says the same of the same code. To look at new ones: tools/soak.sh 1000 $RANDOM.
set -u
cd "$(dirname "$0")/.." || exit 1
seeds=${1:-1000}
first=${2:-1}
if cargo run --quiet --locked -p margay-sim --bin sim -- soak --seeds "$seeds" --first "$first"; then
    echo "evidence: simulated crashes: $seeds of $seeds seeds clean, from seed $first on"
    echo "1 passed, 0 failed"
else
    echo "0 passed, 1 failed"
    exit 1
fi
