#!/usr/bin/env bash
# Churn beside reclaim for long: tools/churn.sh [SECONDS [KILLS [RESULTS]]], for each of its modes (1200 s, 150 kills).
# RESULTS (target/churn.jsonl) keeps what was done: the same command goes on where it stopped, and begins anew for another
# program. MARGAY_BIN names the program. Needs root and /dev/fuse. What a failed run left is named and kept.
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-1200} kills=${2:-150} results=${3:-${CARGO_TARGET_DIR:-target}/churn.jsonl}
good=0 bad=0
churn() {
    if python3 -B tests/mount/churn.py --results "$results" "$@"; then good=$((good + 1)); else bad=$((bad + 1)); fi
}
churn --seconds "$seconds" --issue
churn --seconds "$seconds" --issue --compact
churn --seconds "$seconds" --no-s3
churn --seconds "$seconds" --compact
churn --seconds "$seconds" --versions
churn --seconds "$seconds"
churn --seconds "$seconds" --full
churn --kills "$kills"
echo "$good passed, $bad failed"
[ "$bad" = 0 ]
