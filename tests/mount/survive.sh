#!/usr/bin/env bash
# What a mount must survive, on the real binary: kill -9 after fsync, databases, git, full disks, many files and
# processes. Usage: tests/mount/survive.sh [FILES]. Needs root, /dev/fuse, python3; MARGAY_BIN names the program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
files=${1:-640}
margay=${MARGAY_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}")/release/margay}
work=$(mktemp -d "${TMPDIR:-/tmp}/margay-survive.XXXXXX")
mount=$work/mount
server=
clean_up() {
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    umount -l "$mount" 2>/dev/null || true
    umount -l "$work/disk" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
export MARGAY_ACCESS_KEY=SURVIVESURVIVE MARGAY_SECRET_KEY=survive/secret+survive/secret
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$mount"

ask() { python3 "$here/survive.py" "$@"; }
evidence() { echo "evidence: survive: $*"; }
fail() { echo "FAILED: $*"; tail -n 20 "$work/server.log"; exit 1; }
start() {
    "$margay" serve --data "${1:-$work/data}" --address "127.0.0.1:$port" --admin-address off --mount "work=$mount" \
        --set limits.pack_bytes_max=32MiB --set limits.reserve_bytes=64MiB >>"$work/server.log" 2>&1 </dev/null &
    server=$!
    for _ in $(seq 200); do
        mountpoint -q "$mount" && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    fail "no mount"
}
kill_server() { kill -9 "$server"; wait "$server" 2>/dev/null || true; }
again() { umount -l "$mount"; start; }
stop() { kill "$server"; wait "$server" || fail "the server stopped with an error"; server=; }
# Ends when all of these processes have ended; one that is left after 20 s hangs.
ended() {
    local one
    for one; do
        timeout 20 tail --pid="$one" -s 0.1 -f /dev/null || fail "a process hangs"
        wait "$one" || fail "a process failed"
    done
}
hashes() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }

copied_tree() {
    ask tree "$work/tree" "$files" $((files / 6))
    hashes "$work/tree" >"$work/before"
    cp -r "$work/tree" "$mount/tree"
    sync "$mount/tree"
    kill_server
    again
    hashes "$mount/tree" >"$work/after"
    cmp "$work/before" "$work/after" || fail "the copied tree differs after kill -9"
    evidence "cp -r of $files files, fsync, kill -9, remount: $(wc -l <"$work/after") hashes match"
    rm -r "$mount/tree" "$work/tree"
}

databases() {
    local mode writer kept=
    for mode in DELETE WAL; do
        for _ in 1 2; do
            ask rows "$mount/$mode.db" "$work/$mode.rows" "$mode" & writer=$!
            sleep 1.5
            kill_server
            ended "$writer"
            again
            kept="$kept $mode $(ask rows_kept "$mount/$mode.db" "$work/$mode.rows")"
        done
    done
    evidence "SQLite under kill -9, integrity ok, acknowledged rows kept:$kept"
}

killed_server() {
    local kind victims=()
    for kind in write fsync read list create rename; do
        ask victim "$mount" "$kind" & victims+=($!)
    done
    sleep 1
    kill_server
    ended "${victims[@]}"
    start
    [ "$(stat -c %s "$mount/victim-read")" = 1048576 ] || fail "a synced file is gone"
    rm "$mount"/victim-*
    evidence "a killed server: ${#victims[@]} processes end with a clear error; the next start clears the dead mount"
}

repository() {
    local git="git -c user.name=a -c user.email=a@b -c safe.directory=*"
    mkdir "$mount/git"
    cp -r "$here/../../crates" "$mount/git"
    $git -C "$mount/git" init -q
    $git -C "$mount/git" add .
    $git -C "$mount/git" commit -qm one
    $git -C "$mount/git" fsck --full --strict
    $git clone -q "$mount/git" "$mount/clone"
    diff -r "$here/../../crates" "$mount/clone/crates" || fail "the clone differs"
    evidence "git add, commit, fsck and clone of $($git -C "$mount/clone" ls-files | wc -l) files"
    rm -rf "$mount/git" "$mount/clone"
}

small_work() {
    local own=$mount/processes/$1
    mkdir "$own" && echo "$1" >"$own/a" && cat "$own/a" >"$own/b" && mv "$own/b" "$own/c" && ln "$own/c" "$own/d" \
        && rm "$own/a" && [ "$(cat "$own/d")" = "$1" ] && rm -r "$own" && echo "$1" >>"$mount/log" && echo done
}

crowds() {
    local one each=17000 holders=6 opening=() good
    mkdir "$mount/processes" "$mount/many" "$mount/names"
    good=$(for one in $(seq 1000); do small_work "$one" & done | wc -l)
    [ "$good $(sort -u "$mount/log" | wc -l) $(ls "$mount/processes" | wc -l)" = "1000 1000 0" ] || fail "1000 processes"
    for one in $(seq $holders); do
        mkdir "$mount/many/$one"
        ask many "$mount/many/$one" $each $holders & opening+=($!)
    done
    for one in "${opening[@]}"; do wait "$one" || fail "many open files"; done
    evidence "1000 processes at once; $((holders * each)) files open at once, half of them without a name"
    rm -r "$mount/many"
    evidence "$(ask names "$mount/names") names, not UTF-8 or of 255 bytes"
}

full_disk() {
    mkdir "$work/disk"
    truncate -s 512M "$work/image"
    if ! { mkfs.ext4 -q -m 0 "$work/image" && mount -o loop "$work/image" "$work/disk"; } 2>"$work/mount.log"; then
        echo "skipped: a mount on a full disk, because no loop device mounts: $(tail -n 1 "$work/mount.log")"
        return
    fi
    stop
    start "$work/disk/data"
    evidence "full disk: $(ask refill "$mount")"
    stop
}

start
copied_tree
databases
killed_server
repository
crowds
full_disk
