#!/usr/bin/env bash
# kill -9 of a real margay under mixed load: tests/kill/run.sh [OPTION...], for example --cycles 200 (default: 25).
#
# MARGAY_BIN names the program to kill (default: target/release/margay, built when missing). Options are those of
# `cargo run -p margay-sim --bin kill -- --help`. Ends with lines for tools/test.sh.

set -u
cd "$(dirname "$0")/../.." || exit 1
target=${CARGO_TARGET_DIR:-target}
if [ -z "${MARGAY_BIN:-}" ] && [ ! -x "$target/release/margay" ]; then
    cargo build --release --locked --bin margay || exit 1
fi
[ $# -gt 0 ] || set -- --cycles 25 --kill-ms-max 600

out=$(mktemp)
trap 'rm -f "$out"' EXIT
cargo run --quiet --locked -p margay-sim --bin kill -- "$@" | tee "$out"
status=${PIPESTATUS[0]}
sed -n 's/^kill cycles: /evidence: kill cycles: /p' "$out"
if [ "$status" = 0 ]; then echo "1 passed, 0 failed"; else echo "0 passed, 1 failed"; fi
exit "$status"
