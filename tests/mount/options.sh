#!/usr/bin/env bash
# How a mount is asked for, and what its options do, on the real binary: the units of packaging/, a line of
# /etc/fstab, several mounts, every option, a server that may not mount, an unmount that waits. What the machine has
# at these paths is not touched: all of it happens in a mount name space of its own.
# Usage: tests/mount/options.sh. Needs root, /dev/fuse, python3; MARGAY_BIN names the program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
packaging=$here/../../packaging
if [ "${1:-}" != inside ]; then
    work=$(mktemp -d "${TMPDIR:-/tmp}/margay-options.XXXXXX")
    trap 'rm -rf --one-file-system "$work"' EXIT
    status=0
    MARGAY_OPTIONS_WORK=$work unshare --mount --propagation private "$0" inside || status=$?
    exit "$status"
fi

work=$MARGAY_OPTIONS_WORK
built=${MARGAY_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}")/release/margay}
margay=/usr/bin/margay
photos=/mnt/photos
server=
export MARGAY_ACCESS_KEY=OPTIONSOPTIONS MARGAY_SECRET_KEY=options/secret+options/secret
port=$(python3 "$here/../ports.py")

evidence() { echo "evidence: mount options: $*"; }
fail() { echo "FAILED: $*"; tail -n 20 "$work/server.log"; exit 1; }
# Until it is gone: what it still writes would keep its folder from being removed, which ends this with an error.
clean_up() { [ -z "$server" ] || { kill -9 "$server"; wait "$server"; } 2>/dev/null || true; }
trap clean_up EXIT
trap 'exit 130' INT TERM

# The machine as a package leaves it (tools/dist.sh), which is what packaging/ and docs/operations.md expect.
furnish() {
    mkdir -p "$work"/{sbin,bin,etc/margay,mnt,srv,lib/margay,data}
    ln -s "$margay" "$work/sbin/mount.margay"
    ln "$built" "$work/bin/margay" 2>/dev/null || cp "$built" "$work/bin/margay"
    printf 'data = "/var/lib/margay"\naddress = "127.0.0.1:%s"\nadmin_address = "off"\n[limits]\ndrain_seconds_max = 5\n' "$port" \
        >"$work/etc/margay/margay.toml"
    sed -n 's/^photos  /photos  /p' "$here/../../docs/operations.md" >"$work/etc/fstab"
    [ "$(wc -l <"$work/etc/fstab")" = 1 ] || fail "docs/operations.md has no line of fstab"
    local folder
    for folder in sbin:/usr/sbin bin:/usr/bin etc:/etc lib:/var/lib; do
        mount -t overlay overlay -o "lowerdir=$work/${folder%%:*}:${folder#*:}" "${folder#*:}"
    done
    mount --bind "$work/mnt" /mnt
    mount --bind "$work/srv" /srv
    mount --bind "$work/data" /var/lib/margay
}

begin() {
    "$@" >>"$work/server.log" 2>&1 </dev/null &
    server=$!
    for _ in $(seq 1200); do
        "$margay" status --data "$data" >/dev/null 2>&1 && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    fail "no server"
}
serve() { begin "$margay" serve --data "$data" --address "127.0.0.1:$port" --admin-address off "$@"; }
stop() { kill "$server"; wait "$server" || fail "the server stopped with an error"; server=; }
refused() {
    local wanted=$1
    shift
    if "$@" >"$work/said" 2>&1; then fail "not refused: $*"; fi
    grep -q "$wanted" "$work/said" || fail "$* said: $(cat "$work/said")"
}
mounted() { mountpoint -q "$1" || fail "$1 is not mounted"; }
free() { ! mountpoint -q "$1" || fail "$1 is still mounted"; }
of_unit() { sed -n "s/^$2=//p" "$packaging/$1"; }
client() { "$margay" client --data "$data" --endpoint "http://127.0.0.1:$port" "$@"; }

units() {
    if command -v systemd-analyze >/dev/null; then
        systemd-analyze verify --man=no "$packaging/margay.service" "$packaging/mnt-photos.mount" >"$work/said" 2>&1 ||
            fail "systemd-analyze: $(cat "$work/said")"
        [ ! -s "$work/said" ] || fail "systemd-analyze: $(cat "$work/said")"
        evidence "systemd-analyze verifies both units"
    else
        echo "skipped: verifying the systemd units, because this machine has no systemd-analyze"
    fi
    local command
    read -ra command <<<"$(of_unit margay.service ExecStart)"
    [ "$(of_unit margay.service Type)" = notify ] || fail "the unit is of another type"
    python3 "$here/options.py" await_ready "$work/notify" >"$work/ready" & local waiter=$!
    for _ in $(seq 1200); do if [ -S "$work/notify" ]; then break; fi; sleep 0.05; done
    NOTIFY_SOCKET=$work/notify begin "${command[@]}"
    wait "$waiter" || fail "the server did not say that it is ready"
    # As systemd runs a mount unit.
    mount -t "$(of_unit mnt-photos.mount Type)" -o "$(of_unit mnt-photos.mount Options),create" \
        "$(of_unit mnt-photos.mount What)" "$(of_unit mnt-photos.mount Where)"
    mounted $photos
    echo unit >$photos/unit
    umount $photos
    free $photos
    evidence "ExecStart of the unit serves, the mount unit's line mounts"
}

fstab() {
    mount $photos
    mounted $photos
    [ "$(cat $photos/unit)" = unit ] || fail "fstab shows another bucket"
    "$margay" mounts --data "$data" | grep -q "^photos/ on $photos (rw)$" || fail "mounts does not show it"
    mount -o remount,ro $photos
    refused "Read-only file system" touch $photos/no
    mount -o remount,rw,noexec $photos
    touch $photos/yes
    findmnt -n -o OPTIONS $photos | grep -q "^rw,nosuid,nodev,noexec," || fail "remounted: $(findmnt -n -o OPTIONS $photos)"
    rm $photos/yes
    umount $photos
    free $photos
    [ -z "$("$margay" mounts --data "$data")" ] || fail "mounts shows what is gone"
    mount --all --types margay
    mounted $photos
    umount $photos
    refused "speed is no mount option" mount -o data=/var/lib/margay,speed -t margay photos $photos
    local words
    for words in noatime nodiratime noatime,nodiratime,strictatime noexec user users,exec owner,group rw,dirsync; do
        mount -o "data=/var/lib/margay,$words" -t margay photos $photos || fail "-o $words does not mount"
        umount $photos
    done
    has() {
        mount -o "data=/var/lib/margay,$1" -t margay photos $photos
        for words in ${2//,/ }; do findmnt -no OPTIONS $photos | tr , '\n' | grep -qx "$words" || fail "-o $1: no $words"; done
        for words in ${3//,/ }; do findmnt -no OPTIONS $photos | tr , '\n' | grep -qx "$words" && fail "-o $1: $words"; done
        umount $photos
    }
    has defaults nosuid,nodev,rw noexec
    has user nosuid,nodev,noexec ""
    has noexec,exec nosuid,nodev noexec
    has noexec noexec,nosuid,nodev ""
    has ro,noatime ro ""
    has allow_suid,allow_dev,noatime rw nosuid,nodev,noexec
    mount -o data=/var/lib/margay,noexec -t margay photos $photos
    cp /bin/true $photos/true
    refused "Permission denied" $photos/true
    rm $photos/true
    umount $photos
    evidence "mount(8), a remount and umount(8) by a line of /etc/fstab, with what it says of every file system"
}

several() {
    local one writers=()
    for one in 1 2 3 4; do "$margay" mount "bucket$one" "/mnt/$one" --create --data "$data"; done
    "$margay" mount bucket1 /mnt/view --read-only --data "$data"
    python3 "$here/options.py" told /mnt/1 268435456 || fail "the mount says wrong things of itself"
    for one in 1 2 3 4; do echo "$one" >"/mnt/$one/file" & writers+=($!); done
    wait "${writers[@]}"
    for one in 1 2 3 4; do
        mounted "/mnt/$one"
        [ "$(cat "/mnt/$one/file") $(ls "/mnt/$one")" = "$one file" ] || fail "mount $one shows another"
    done
    [ "$(cat /mnt/view/file)" = 1 ] || fail "the view shows another"
    refused "Read-only file system" touch /mnt/view/no
    touch /mnt/1/yes
    "$margay" unmount /mnt/view --data "$data"
    for one in 1 2 3 4; do "$margay" unmount "/mnt/$one" --data "$data"; free "/mnt/$one"; done
    evidence "four buckets and a read-only view at once; statfs leaves the reserve out; no file handles"
}

shown() {
    "$margay" mount bucket1 /mnt/1 --read-only --data "$data"
    refused "Read-only file system" touch /mnt/1/file
    refused "Read-only file system" rm /mnt/1/file
    refused "takes the options of the first" "$margay" mount bucket1 /mnt/view --data "$data"
    "$margay" unmount /mnt/1 --data "$data"
    "$margay" mount bucket1 /mnt/1 -o uid=1234,gid=4321,umask=027 --data "$data"
    touch /mnt/1/mine
    mkdir /mnt/1/folder
    [ "$(stat -c '%u %g %a' /mnt/1/mine /mnt/1/folder | uniq)" = "1234 4321 750" ] || fail "uid, gid, umask"
    "$margay" unmount /mnt/1 --data "$data"
    evidence "read-only; uid, gid and umask"
}

writeback() {
    "$margay" mount bucket2 /mnt/2 -o writeback --data "$data"
    python3 "$here/options.py" small_writes /mnt/2 "$work/expected"
    cmp /mnt/2/small "$work/expected" || fail "small writes through the writeback cache"
    sync -f /mnt/2/small
    client get s3://bucket2/small "$work/got"
    cmp "$work/got" "$work/expected" || fail "S3 shows other bytes than the writeback cache"
    "$margay" unmount /mnt/2 --data "$data"
    evidence "writeback: small writes, appends and a memory map, the same through S3"
}

# Nothing is synced by the programs; what they were told is done is there after kill -9.
synced() {
    local writers=() one
    "$margay" mount bucket3 /mnt/3 --sync --data "$data"
    for one in 1 2 3 4; do
        : >"$work/changes.$one"
        python3 "$here/options.py" changes "/mnt/3/$one" "$work/changes.$one" & writers+=($!)
    done
    for one in 1 2 3 4; do
        for _ in $(seq 600); do if [ "$(wc -l <"$work/changes.$one")" -ge 20 ]; then break; fi; sleep 0.1; done
    done
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    for one in "${writers[@]}"; do wait "$one" || fail "a writer failed"; done
    serve
    "$margay" mount bucket3 /mnt/3 -o sync --data "$data"
    for one in 1 2 3 4; do
        python3 "$here/options.py" changes_kept "/mnt/3/$one" "$work/changes.$one" || fail "--sync lost a change"
    done
    "$margay" unmount /mnt/3 --data "$data"
    evidence "sync: $(cat "$work"/changes.? | wc -l) changes by four programs, none synced by them, all there after kill -9"
}

waiting() {
    "$margay" mount bucket4 /mnt/4 --data "$data"
    # Open until it is told to go on, and then for two seconds more.
    { until [ -e "$work/go-on" ]; do sleep 0.05; done; for _ in $(seq 20); do echo line; sleep 0.1; done; } >/mnt/4/slow & local writer=$!
    until [ -e /mnt/4/slow ]; do sleep 0.05; done
    refused "busy" umount /mnt/4
    : >"$work/go-on"
    "$margay" unmount /mnt/4 --wait 60 --data "$data" 2>"$work/said"
    [ ! -s "$work/said" ] || fail "unmount did not wait: $(cat "$work/said")"
    wait "$writer" || fail "the writer was cut off"
    free /mnt/4
    "$margay" mount bucket4 /mnt/4 --data "$data"
    [ "$(wc -l </mnt/4/slow)" = 20 ] || fail "lines are missing"
    exec 5>/mnt/4/held
    echo held >&5
    refused "was still in use and was detached; it was used by: .*(process $$, /mnt/4/held)" "$margay" unmount /mnt/4 --wait 1 --data "$data"
    free /mnt/4
    client get s3://bucket4/held "$work/got"
    [ "$(cat "$work/got")" = held ] || fail "what was written before the unmount is not published"
    exec 5>&-
    evidence "unmount waits for a writer; after its time it says that it did not, and publishes what was written"
}

no_rights() {
    if ! command -v setpriv >/dev/null; then
        echo "skipped: a server that may not mount, because this machine has no setpriv"
        return
    fi
    mkdir "$work/srv/nobody" "$work/mnt/nobody"
    chown nobody "$work/srv/nobody" "$work/mnt/nobody"
    chmod 755 "$work"
    data=/srv/nobody
    : >"$work/server.log"
    mknod -m 600 "$work/fuse" c 10 229
    mount --bind "$work/fuse" /dev/fuse
    begin setpriv --reuid nobody --clear-groups "$margay" serve --data $data --address "127.0.0.1:$port" \
        --admin-address off --mount photos=/mnt/nobody
    # Said once the server serves, which `status` may hear of earlier.
    local message="photos/ not mounted: /dev/fuse cannot be opened: .*; run as root, or let this user open it"
    for _ in $(seq 1200); do if grep -q "$message" "$work/server.log"; then break; fi; sleep 0.05; done
    grep -q "$message" "$work/server.log" || fail "no clear message of /dev/fuse"
    refused "/dev/fuse cannot be opened" "$margay" mount photos /mnt/nobody --data $data
    echo body >"$work/body"
    client mb s3://goes-on
    client put "$work/body" s3://goes-on/key
    client get s3://goes-on/key "$work/got"
    cmp "$work/body" "$work/got" || fail "S3 does not go on"
    evidence "without the right to mount the server says so and serves S3"
}

furnish
data=/var/lib/margay
units
fstab
several
shown
writeback
synced
waiting
stop
no_rights
