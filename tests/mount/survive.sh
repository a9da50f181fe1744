#!/usr/bin/env bash
# What a mount must survive, on the real binary, beside reclaim: kill -9 after fsync, databases, git, full disks, many files
# and processes. Usage: tests/mount/survive.sh [FILES]. Needs root, /dev/fuse, python3; MARGAY_BIN names the program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
files=${1:-640}
margay=${MARGAY_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}")/release/margay}
work=$(mktemp -d "${TMPDIR:-/tmp}/margay-survive.XXXXXX")
mount=$work/mount
server= orders=
clean_up() {
    [ -z "$orders" ] || kill -9 "$orders" 2>/dev/null || true
    [ -z "$server" ] || { kill -9 "$server"; wait "$server"; } 2>/dev/null || true
    umount -l "$mount" 2>/dev/null || true
    umount -l "$work/disk" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
export MARGAY_ACCESS_KEY=SURVIVESURVIVE MARGAY_SECRET_KEY=survive/secret+survive/secret
port=$(python3 "$here/../ports.py")
mkdir "$mount"

ask() { python3 "$here/survive.py" "$@"; }
evidence() { echo "evidence: survive: $*"; }
fail() { echo "FAILED: $*"; tail -n 20 "$work/server.log"; exit 1; }
# Whether a living server answers: unlike stat, statfs is never answered from the kernel's cache, so a dead mount fails, and
# the directory below it is of another kind.
answers() { [ "$(stat -f -c %t "$mount" 2>/dev/null)" = 65735546 ]; }
# Whatever waits an hour or a day comes within seconds.
soon=(--set limits.quarantine_time=1 --set limits.check_interval=1)
start() {
    echo "${1:-$work/data}" >"$work/served"
    "$margay" serve --data "${1:-$work/data}" --address "127.0.0.1:$port" --admin-address off --mount "work=$mount" \
        --set limits.pack_bytes_max=32MiB --set limits.reserve_bytes=64MiB "${soon[@]}" >>"$work/server.log" 2>&1 </dev/null &
    server=$!
    for _ in $(seq 1200); do
        answers && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    fail "no mount"
}
kill_server() { kill -9 "$server"; wait "$server" 2>/dev/null || true; }
again() { umount -l "$mount"; start; }
stop() {
    python3 "$here/../beside.py" "$(cat "$work/served")" --once || fail "the server found something wrong"
    kill "$server"; wait "$server" || fail "the server stopped with an error"
    server=
    "$margay" fsck --data "$(cat "$work/served")" >"$work/fsck" || { cat "$work/fsck"; fail "fsck"; }
}
# Orders to the server of the first half, at random moments; the second half is about what it does by itself.
begin_orders() { python3 "$here/../beside.py" "$work/data" >"$work/orders" 2>&1 & orders=$!; }
end_orders() {
    # It is gone when it found something.
    kill "$orders" 2>/dev/null || true
    wait "$orders" || fail "beside reclaim: $(cat "$work/orders")"
    orders=
    evidence "$(cat "$work/orders")"
}
# Ends when all of these processes have ended; one that is left after 2 minutes hangs.
ended() {
    local one
    for one; do
        timeout 120 tail --pid="$one" -s 0.1 -f /dev/null || fail "a process hangs"
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
            : >"$work/$mode.begun"
            ask rows "$mount/$mode.db" "$work/$mode.rows" "$mode" & writer=$!
            # On a busy machine it takes long until the first row is there.
            until [ "$work/$mode.rows" -nt "$work/$mode.begun" ] && [ -s "$work/$mode.rows" ]; do
                kill -0 "$writer" 2>/dev/null || fail "the writer of $mode ended early"
                sleep 0.1
            done
            sleep 1.5
            kill_server
            ended "$writer"
            again
            kept="$kept $mode $(ask rows_kept "$mount/$mode.db" "$work/$mode.rows")"
        done
    done
    evidence "SQLite under kill -9, integrity ok, acknowledged rows kept:$kept"
}

# The newest PostgreSQL of this machine, as its own user: initdb, a server, writers; kill -9 under them, twice.
postgres() {
    local bin base=$mount/postgres sockets=$work/sockets round one writers rows=0 load server_of_base parts
    bin=$(dirname "$(ls -v /usr/lib/postgresql/*/bin/initdb 2>/dev/null | tail -n 1)")
    if [ ! -x "$bin/postgres" ] || ! id postgres >/dev/null 2>&1; then
        echo "skipped: PostgreSQL on a mount, because this machine has no PostgreSQL"
        return
    fi
    as() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
    database() { as "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$sockets" -d postgres "$@"; }
    begin_database() {
        as "$bin/pg_ctl" -D "$base" -w -t 120 -l "$sockets/log" -o "-k $sockets -c listen_addresses=" start >"$work/said" ||
            { cat "$sockets/log"; fail "PostgreSQL does not start"; }
    }
    mkdir "$base" "$sockets"
    chmod 755 "$work"
    chmod 700 "$base"
    chown postgres "$base" "$sockets"
    as "$bin/initdb" -D "$base" -A trust -k >"$work/said" || { cat "$work/said"; fail "initdb"; }
    begin_database
    database -c 'CREATE TABLE t(writer int, number int, body text, PRIMARY KEY (writer, number))'
    for round in 1 2; do
        writers=()
        for one in 1 2 3 4; do
            # A number is printed when its commit was answered.
            seq -f "INSERT INTO t SELECT $one, $round * 1000000 + n, repeat('x', n %% 3000) FROM (SELECT %.0f::int) AS s(n) RETURNING number;" 200000 |
                database >"$work/acknowledged.$round.$one" 2>/dev/null & writers+=($!)
        done
        database -c "CREATE TABLE load$round AS SELECT n, md5(n::text) FROM generate_series(1, 200000) n" 2>/dev/null & load=$!
        sleep 4
        server_of_base=$(head -n 1 "$base/postmaster.pid")
        parts=$({ pgrep -P "$server_of_base" || true; } | tr '\n' ' ')
        kill_server
        for one in "${writers[@]}"; do if wait "$one"; then fail "a writer did not notice"; fi; done
        wait "$load" || true
        # What is left of it can only be killed: its directory answers nothing.
        kill -9 "$server_of_base" $parts 2>/dev/null || true
        timeout 120 tail --pid="$server_of_base" -s 0.1 -f /dev/null || fail "PostgreSQL hangs"
        again
        begin_database
        for one in 1 2 3 4; do
            database -c "SELECT number FROM t WHERE writer = $one AND number / 1000000 = $round" | sort >"$work/have"
            sort "$work/acknowledged.$round.$one" | comm -23 - "$work/have" >"$work/lost"
            [ ! -s "$work/lost" ] || fail "PostgreSQL lost $(wc -l <"$work/lost") acknowledged rows"
            rows=$((rows + $(wc -l <"$work/acknowledged.$round.$one")))
        done
        database -c 'SELECT count(*) FROM t' -c 'REINDEX TABLE t' -c 'VACUUM FULL t' >/dev/null
    done
    as "$bin/pg_ctl" -D "$base" -w -m fast stop >"$work/said"
    as "$bin/pg_checksums" -D "$base" --check >"$work/said" || { cat "$work/said"; fail "checksums of PostgreSQL"; }
    evidence "PostgreSQL under kill -9, twice: $rows acknowledged rows kept, checksums of $(sed -n 's/^Blocks scanned: *//p' "$work/said") blocks right"
    rm -r "$base"
}

killed_server() {
    local kind victims=()
    for kind in write fsync read list create rename; do
        ask victim "$mount" "$kind" "$work/begun-$kind" & victims+=($!)
    done
    # The length of a file says nothing of its fsync, which a busy disk keeps for seconds.
    for kind in write fsync read list create rename; do
        for _ in $(seq 1200); do
            if [ -e "$work/begun-$kind" ]; then break; fi
            sleep 0.1
        done
        [ -e "$work/begun-$kind" ] || fail "$kind has not begun"
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
    local one each=17000 holders=6 opening=() good names
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
    # In an argument its failure would go unnoticed.
    names=$(ask names "$mount/names") || fail "names"
    evidence "$names names, not UTF-8 or of 255 bytes"
}

# A disk of its own of so many bytes; fails where none can be had.
disk() {
    umount "$work/disk" 2>/dev/null || true
    mkdir -p "$work/disk"
    rm -f "$work/image"
    truncate -s "$1" "$work/image"
    { mkfs.ext4 -q -m 0 "$work/image" && mount -o loop "$work/image" "$work/disk"; } 2>"$work/mount.log"
}

full_disk() {
    local refilled overwritten
    if ! disk 1G; then
        echo "skipped: a mount on a full disk, because no loop device mounts: $(tail -n 1 "$work/mount.log")"
        return
    fi
    stop
    start "$work/disk/data"
    overwritten=$(ask overwrite "$mount") || fail "a file that is written over on a small disk"
    evidence "a disk of 1 GiB: $overwritten"
    stop
    disk 512M
    start "$work/disk/data"
    refilled=$(ask refill "$mount") || fail "a full disk"
    evidence "full disk: $refilled"
    stop
}

# The server keeps enough free for its next start: it starts on a full disk, shows all, deletes and goes on.
start_on_full_disk() {
    local files
    disk 512M || return 0
    start "$work/disk/data"
    ask fill "$mount" "$work/manifest"
    for _ in 1 2; do
        kill_server
        umount -l "$mount"
        start "$work/disk/data"
        files=$(ask filled "$mount" "$work/manifest")
    done
    rm "$mount"/1*
    # What was deleted is given back in the background.
    for _ in $(seq 600); do cp "$work/manifest" "$mount/manifest" 2>/dev/null && break; sleep 0.2; done
    sync "$mount/manifest"
    kill_server
    umount -l "$mount"
    start "$work/disk/data"
    cmp "$work/manifest" "$mount/manifest" || fail "what was written after a full disk differs"
    evidence "full of $files files of 1 MB: starts again after kill -9, shows them as they were, deletes and goes on"
    stop
}

start
begin_orders
copied_tree
databases
postgres
killed_server
repository
# 100,000 rows more would be folded and walked again and again.
end_orders
crowds
full_disk
start_on_full_disk
