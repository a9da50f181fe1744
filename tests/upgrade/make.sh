#!/usr/bin/env bash
# Makes tests/upgrade/fixtures/NAME.tar.gz with the program as it is now: tests/upgrade/make.sh NAME
#
# To be run once per format version, before the format changes; the archive is never made again. It holds a data
# directory that was killed (so the log must be replayed) after a part of it was folded into the tree, and the list of
# what was acknowledged: `expected` has a line `MD5 SIZE KEY` per object.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
margay=${MARGAY_BIN:-$here/../../target/release/margay}
name=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MARGAY_ACCESS_KEY=UPGRADEUPGRADEUPGRAD MARGAY_SECRET_KEY=upgrade/secret+upgrade/secret+upgrade12
start() {
    "$margay" serve --data "$work/data" --address 127.0.0.1:9377 --admin-address off \
        --set limits.log_bytes_max=8MiB --set limits.pack_bytes_max=16MiB --set limits.raw_bytes_min=1MiB >"$work/log" 2>&1 &
    pid=$!
    for _ in $(seq 1 50); do curl -sf -o /dev/null http://127.0.0.1:9377/-/health && return; sleep 0.1; done
    cat "$work/log"
    exit 1
}
client() { "$margay" client --endpoint http://127.0.0.1:9377 "$@"; }
put() {
    # Size 0 and 100 go into the entry, up to 64 KiB into the log, 200,000 into a pack, 1,200,000 gets a segment.
    { yes "$2 $1" || true; } 2>/dev/null | head -c "$1" >"$work/object"
    client put "$work/object" "s3://kept/$2" >/dev/null
    printf '%s %s %s\n' "$(md5sum <"$work/object" | cut -d' ' -f1)" "$1" "$2" >>"$work/expected"
}
start
client mb s3://kept >/dev/null
for size in 0 100 5000 60000 200000 1200000; do put "$size" "folded/size $size"; done
for key in a a/b a//b a-b a0 ./.. 'é/ü' 'deep/1/2/3/4/5/6/7/8'; do put 300 "$key"; done
for number in $(seq 1 40); do put 2000 "gone/$number"; done
client rm --recursive s3://kept/gone/ >/dev/null
sed -i '/ gone\//d' "$work/expected"
kill "$pid"; wait "$pid" || true
start
for size in 1 129 64000 70000; do put "$size" "logged/size $size"; done
put 500 'folded/size 100'
sed -i '0,/folded\/size 100$/{/folded\/size 100$/d}' "$work/expected"
client rm 's3://kept/folded/size 60000' >/dev/null
sed -i '/folded\/size 60000$/d' "$work/expected"
kill -9 "$pid"; wait "$pid" 2>/dev/null || true
rm -f "$work/data/keys"
tar -C "$work" --sparse -czf "$here/fixtures/$name.tar.gz" data expected
ls -la "$here/fixtures/$name.tar.gz"
