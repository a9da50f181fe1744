#!/usr/bin/env bash
# Looks for what the fixed seeds of `make test` never see: tools/night.sh [SECONDS [SEED]] (8 hours) runs models, simulated
# worlds, races, fuzz targets, kills and churn with new seeds, round after round, until the time is over.
# Every step prints its command before it runs; what failed stands again at the end and in target/night/failed, each line a command
# that runs the same seed again, and its output stays beside it. A failure ends its step only. SEED begins the same seeds again.
# Steps on a mount need /dev/fuse and root, unless MARGAY_NO_FUSE=1 leaves them out.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-28800}
RANDOM=${2:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
begin=${2:-$RANDOM}
RANDOM=$begin
[[ "$seconds" =~ ^[0-9]+$ && "$begin" =~ ^[0-9]+$ ]] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/night
mkdir -p "$out"
: >"$out/failed"
export MARGAY_BIN=${MARGAY_BIN:-$target/release/margay}
# A case that failed is told by its seed; it does not become a file of the tree.
export PROPTEST_FAILURE_PERSISTENCE=off
good=0 bad=0

mounts=1
if [ "${MARGAY_NO_FUSE:-}" = 1 ]; then
    mounts=0
    echo "skipped: steps on a mount, because MARGAY_NO_FUSE=1 says that nothing is mounted here"
elif [ ! -c /dev/fuse ] || [ "$(id -u)" != 0 ]; then
    echo "steps on a mount need /dev/fuse and root; MARGAY_NO_FUSE=1 leaves them out" >&2
    exit 2
fi

left() { echo $((seconds - SECONDS)); }

# step NAME COMMAND...: runs it unless the time is over.
step() {
    local name=$1 log
    shift
    [ "$(left)" -gt 0 ] || return 0
    log=$out/$name.log
    printf '%s %s: %s\n' "$(date +%H:%M:%S)" "$name" "$*"
    if "$@" >"$log" 2>&1; then
        good=$((good + 1))
        return 0
    fi
    bad=$((bad + 1))
    mv "$log" "$out/$name-$bad.log"
    printf '%s   # %s\n' "$*" "$out/$name-$bad.log" | tee -a "$out/failed" | sed 's/^/FAILED: /'
}

# The next new seed; not in a subshell, which has random numbers of its own.
next() { seed=$((RANDOM * 32768 + RANDOM + 1)); }

tools/prepare.sh tests || exit 1
cargo build --quiet --release --locked --bin margay || exit 1
echo "night: $seconds s, begun with seed $begin"
# All orders of two operations are tried each time: once says it.
for one in interleavings interleavings_mount interleavings_open interleavings_reclaim interleavings_settings; do
    step "$one" cargo test --quiet --locked -p margay-volume --test "$one"
done
while [ "$(left)" -gt 0 ]; do
    next; step models env PROPTEST_RNG_SEED="$seed" cargo test --quiet --locked --no-fail-fast -p margay-rows -p margay-segment -p margay-meta -p margay-volume -p margay-s3
    next; step worlds cargo run --quiet --locked -p margay-sim --bin sim -- soak --seeds 100 --first "$seed" --failures 5
    next; step far-model env MARGAY_TEST_SEEDS=5000 MARGAY_TEST_FIRST="$seed" cargo test --quiet --locked -p margay-upstream --test model
    next; step far-mirror env MARGAY_TEST_SEEDS=50 MARGAY_TEST_FIRST="$seed" cargo test --quiet --locked -p margay-upstream --test mirror
    step fuzz tools/fuzz.sh 20
    next; step kills cargo run --quiet --locked -p margay-sim --bin kill -- --cycles 10 --seed "$seed"
    [ "$mounts" = 1 ] || continue
    next; step doors cargo run --quiet --locked -p margay-sim --bin doors -- --operations 3000 --seed "$seed"
    next; step mirror cargo run --quiet --locked -p margay-sim --bin mirror -- --operations 5000 --kill-every 500 --seed "$seed"
    next; step churn python3 -B tests/mount/churn.py --seconds 120 --seed "$seed"
    next; step churn-compact python3 -B tests/mount/churn.py --compact --versions --seconds 60 --seed "$seed"
    next; step churn-kills python3 -B tests/mount/churn.py --kills 3 --seed "$seed"
    next; step fsx python3 -B tests/mount/fsx.py --seconds 120 --seed "$seed"
done
if [ "$bad" != 0 ]; then
    echo "what failed, to be run again:"
    cat "$out/failed"
fi
echo "$good passed, $bad failed"
[ "$bad" = 0 ]
