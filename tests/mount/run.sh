#!/usr/bin/env bash
# The POSIX door of the real binary: both doors against each other, and the mount against a directory of this
# machine, also after kill -9; what it must survive; how it is asked for; that it shows nothing but its bucket.
# Usage: tests/mount/run.sh [CHANGES [CALLS [KILL_CALLS]]]
set -euo pipefail
cd "$(dirname "$0")/../.."

changes=${1:-3000} calls=${2:-10000} kill_calls=${3:-4000}
export MARGAY_BIN=${MARGAY_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/margay}

if [ ! -c /dev/fuse ] || [ "$(id -u)" != 0 ]; then
    echo "skipped: the mount, because this machine has no /dev/fuse or this is not root"
    exit 0
fi
run() { cargo run --quiet --locked -p margay-sim --bin "$1" -- "${@:2}" | sed 's/^/evidence: /'; }
run doors --operations "$changes"
run mirror --operations "$calls"
run mirror --operations "$kill_calls" --kill-every 150
tests/mount/survive.sh
tests/mount/options.sh
unshare --mount --propagation private python3 tests/mount/isolation.py
