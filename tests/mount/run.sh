#!/usr/bin/env bash
# The POSIX door of the real binary, all beside reclaim: both doors against each other, and the mount against a directory of this
# machine, also after kill -9; fsx; what it must survive; how it is asked for; that it shows nothing but its bucket; that it
# gives nobody the rights of another; that a server which is killed is gone, however the kernel holds it.
# Usage: tests/mount/run.sh [CHANGES [CALLS [KILL_CALLS]]]
set -euo pipefail
cd "$(dirname "$0")/../.."

changes=${1:-3000} calls=${2:-10000} kill_calls=${3:-4000}
export MARGAY_BIN=${MARGAY_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/margay}

if [ "${MARGAY_NO_FUSE:-}" = 1 ]; then
    echo "skipped: the mount, because MARGAY_NO_FUSE=1 says that nothing is mounted here"
    exit 0
fi
if [ ! -c /dev/fuse ] || [ "$(id -u)" != 0 ]; then
    echo "FAILED: the mount needs /dev/fuse and root; MARGAY_NO_FUSE=1 leaves it out" >&2
    exit 1
fi
run() { cargo run --quiet --locked -p margay-sim --bin "$1" -- "${@:2}" | sed 's/^/evidence: /'; }
run doors --operations "$changes"
run mirror --operations "$calls"
run mirror --operations "$kill_calls" --kill-every 150
# A minute of changes whose every byte is known, beside reclaim, and kill -9 of servers that live long enough for it.
churn() { python3 -B tests/mount/churn.py "$@"; }
churn --issue --seconds 12
churn --seconds 15
churn --compact --no-s3 --seconds 12
churn --versions --compact --seconds 12
churn --kills 2
python3 -B tests/mount/fsx.py --seconds 15
tests/mount/survive.sh
tests/mount/options.sh
for one in "isolation.py" "set_id.py" "killed.py 12"; do
    # shellcheck disable=SC2086
    unshare --mount --propagation private python3 tests/mount/$one
done
