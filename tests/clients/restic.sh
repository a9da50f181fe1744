#!/usr/bin/env bash
# restic, a backup program, against $ENDPOINT; started by run.sh.
. "$(dirname "$0")/checks.sh"

bucket=clients-restic
export RESTIC_REPOSITORY=s3:$ENDPOINT/$bucket/deep/er RESTIC_PASSWORD=clients RESTIC_CACHE_DIR=$WORK/cache RESTIC_PROGRESS_FPS=0.1
rs() { restic --quiet "$@"; }

make_source() {
    rm -rf "$WORK/source"
    cp -r "$FILES/tree" "$WORK/source"
    cp "$FILES/large" "$WORK/source/large"
}

restores() {
    rm -rf "$WORK/restored"
    rs restore "$1" --target "$WORK/restored"
    diff -r "$WORK/source" "$WORK/restored$WORK/source"
}

second_backup() {
    printf 'more\n' >>"$WORK/source/file 1.txt"
    rm "$WORK/source/file 2.txt"
    head -c 3000000 /dev/urandom >"$WORK/source/new"
    rs backup "$WORK/source"
    same "$(restic snapshots --json | grep -o '"short_id"' | wc -l)" 2
}

forget_and_prune() {
    rs forget --keep-last 1 --prune --max-unused 0
    same "$(restic snapshots --json | grep -o '"short_id"' | wc -l)" 1
    rs check --read-data
}

locked_out() { RESTIC_PASSWORD=wrong restic snapshots; }

# What a lost object does: the backup program must see that it is gone.
damage_is_seen() {
    local key
    key=$("$VENV/bin/aws" --endpoint-url "$ENDPOINT" s3 ls --recursive "s3://$bucket/deep/er/data/" | awk '{ print $4 }' | head -n 1)
    "$VENV/bin/aws" --endpoint-url "$ENDPOINT" s3 rm "s3://$bucket/$key"
    ! rs check
}

remove() { "$VENV/bin/aws" --endpoint-url "$ENDPOINT" s3 rb --force "s3://$bucket"; }

check 'init makes the bucket' rs init
check 'init again is refused' fails_with 'already' restic init
check 'wrong password' fails_with 'wrong password' locked_out
make_source
check 'backup' rs backup "$WORK/source"
check 'check' rs check --read-data
check 'restore' restores latest
check 'second backup' second_backup
check 'restore of the second' restores latest
check 'forget and prune' forget_and_prune
check 'restore after prune' restores latest
check 'no locks are left' bash -c "[ -z \"\$(restic list locks --quiet --no-lock)\" ]"
check 'a lost object is seen' damage_is_seen
check 'remove' remove
finish
