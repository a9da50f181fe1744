#!/usr/bin/env bash
# Feeds every decoder of bytes from outside with what a coverage-guided fuzzer makes up:
#   tools/fuzz.sh [SECONDS] [TARGET...]   SECONDS for each target (60), as many at once as there are processors
#   tools/fuzz.sh INPUTSx [TARGET...]     INPUTS for each target, for example 50000x: the same ones each time
#   tools/fuzz.sh seeds                   writes the seeds that are real encodings again, after a format has changed
#
# Targets are fuzz/src/bin/*.rs, what they begin with is fuzz/seeds; what they find new is kept in fuzz/corpus, and an
# input that breaks a decoder in fuzz/crashes, with a command that runs it again. 0 SECONDS runs only what is kept.
# A count of inputs begins at the seeds with the same random numbers, so that a test says the same of the same code:
# looking for more is for those who gave it time.
# Works with the stable compiler: coverage comes from a pass of LLVM that needs no nightly flag.
set -uo pipefail
cd "$(dirname "$0")/.."
tools/prepare.sh fuzz || exit 1

limit=(-max_total_time=60) asked="60 s" known=fuzz/corpus
if [[ "${1:-}" =~ ^([0-9]+)(x?)$ ]]; then
    case ${BASH_REMATCH[2]},$((10#${BASH_REMATCH[1]})) in
        ,0) limit=(-runs=0) ;;
        ,*) limit=(-max_total_time="${BASH_REMATCH[1]}") ;;
        x,*) limit=(-runs="${BASH_REMATCH[1]}" -seed=1) known= ;;
    esac
    asked="${BASH_REMATCH[1]} $([ "${BASH_REMATCH[2]}" ] && echo inputs || echo s)"
    shift
fi
host=$(rustc -vV | sed -n 's/^host: //p')
# Naming the platform keeps the flags away from build scripts.
passes="-Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    passes+=" -Cllvm-args=-sanitizer-coverage-$option"
done
RUSTFLAGS=$passes cargo build --manifest-path fuzz/Cargo.toml --target "$host" --bins || exit 1
built=${CARGO_TARGET_DIR:-fuzz/target}/$host/debug

if [ "${1:-}" = seeds ]; then exec "$built/margay-fuzz"; fi
targets=("$@")
if [ $# = 0 ]; then
    for file in fuzz/src/bin/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
mkdir -p fuzz/crashes

# Runs one target.
fuzz() {
    local target=$1 corpus=${known:-$logs/corpus}/$1 seeds=fuzz/seeds/$1
    mkdir -p "$corpus"
    # The seeds are only read: new inputs go to the first folder.
    RUST_BACKTRACE=0 "$built/$target" "${limit[@]}" -max_len=4096 -timeout=60 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="fuzz/crashes/$target-" "$corpus" "$seeds" >"$logs/$target" 2>&1
}

for target in "${targets[@]}"; do
    if [ ! -x "$built/$target" ]; then echo "no fuzz target $target in fuzz/src/bin" >&2; exit 2; fi
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    { fuzz "$target"; echo $? >"$logs/$target.status"; } &
done
wait

failed=0 runs=0
for target in "${targets[@]}"; do
    if [ "$(cat "$logs/$target.status")" = 0 ]; then
        count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$logs/$target")
        runs=$((runs + count))
        echo "fuzz $target: ok, $count runs, $(grep -oE 'cov: [0-9]+' "$logs/$target" | tail -n1 | cut -d' ' -f2) places reached"
    else
        failed=$((failed + 1))
        echo "fuzz $target: FAILED"
        grep -E -A 4 'panicked at|ERROR: libFuzzer: [^d]|^SUMMARY: libFuzzer: [^d]' "$logs/$target" | cut -c 1-400
        echo "again: $built/$target $(sed -n 's/.*Test unit written to //p' "$logs/$target")"
    fi
done
echo "evidence: fuzzing, $asked for each of ${#targets[@]} targets: $runs inputs, $failed targets failed"
[ "$failed" = 0 ]
