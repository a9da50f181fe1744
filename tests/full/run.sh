#!/usr/bin/env bash
# A full disk, again and again: tests/full/run.sh [ROUNDS] [MEBIBYTES]
#
# Makes a small ext4 in a loop device, runs margay on it, and fills, deletes and refills it. Each round must end in a
# clear error (507), keep what was acknowledged readable, let DELETE succeed, and give at least 95 % of the deleted
# bytes back within 60 s. Needs root and loop devices. MARGAY_BIN names the program (default: target/release/margay).
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
rounds=${1:-20} mebibytes=${2:-1536}
margay=${MARGAY_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/margay}
[ -x "$margay" ] || { echo "no $margay: build it first (make build)"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/margay-full.XXXXXX")
server_pid=
clean_up() {
    [ -z "$server_pid" ] || { kill "$server_pid" 2>/dev/null; wait "$server_pid" 2>/dev/null; }
    mountpoint -q "$work/disk" && umount "$work/disk"
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

mkdir "$work/disk"
truncate -s "${mebibytes}M" "$work/image"
if ! { mkfs.ext4 -q -m 0 "$work/image" && mount -o loop "$work/image" "$work/disk"; } 2>"$work/mount.log"; then
    echo "skipped: full disk, because no loop device can be mounted here: $(tail -n 1 "$work/mount.log")"
    exit 0
fi
rmdir "$work/disk/lost+found"
port=$(python3 "$here/../ports.py")
export MARGAY_ACCESS_KEY=FULLFULLFULLFULLFULL MARGAY_SECRET_KEY=full/secret+full/secret+full/secret+full
"$margay" serve --data "$work/disk" --address "127.0.0.1:$port" --admin-address off \
    --set limits.reserve_bytes=64MiB --set limits.pack_bytes_max=32MiB \
    --set limits.quarantine_time=1 --set limits.check_interval=1 >"$work/server.log" 2>&1 </dev/null &
server_pid=$!
for _ in $(seq 1 1200); do
    curl -sS --fail -o /dev/null "http://127.0.0.1:$port/-/health" 2>/dev/null && break
    kill -0 "$server_pid" 2>/dev/null || { cat "$work/server.log"; exit 1; }
    sleep 0.1
done
python3 "$here/fill.py" "http://127.0.0.1:$port" "$rounds"
status=$?
if [ "$status" -ne 0 ]; then tail -n 20 "$work/server.log"; df -h "$work/disk"; ls -la "$work/disk/segments" | tail -n 20; exit 1; fi
# Passes and checks came every few seconds, by themselves.
python3 "$here/../beside.py" "$work/disk" --once || { tail -n 20 "$work/server.log"; exit 1; }
kill "$server_pid"; wait "$server_pid"; server_pid=
"$margay" fsck --data "$work/disk" || { echo 'fsck found damage'; exit 1; }
echo "evidence: full disk: $rounds of $rounds rounds of fill, delete, refill; fsck clean"
