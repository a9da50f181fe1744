#!/usr/bin/env bash
# rclone against $ENDPOINT; started by run.sh.
. "$(dirname "$0")/checks.sh"

bucket=clients-rclone${SUFFIX:-}
configure_rclone
rc() { rclone ${CA:+--ca-cert "$CA"} --retries 1 --low-level-retries 1 "$@"; }

round_trip() {
    rm -f "$WORK/back"
    rc copyto "$1" "m:$bucket/$2"
    rc copyto "m:$bucket/$2" "$WORK/back"
    cmp "$1" "$WORK/back"
}

odd_keys_round_trip() {
    local key
    for key in "${odd_keys[@]}"; do
        # rclone rewrites names that end in a space or hold an empty part; those are not the server's business.
        case $key in *//* | *' ') continue ;; esac
        printf '%s' "$key" >"$WORK/odd"
        rc copyto "$WORK/odd" "m:$bucket/odd/$key" || { echo "put [$key]"; return 1; }
        rc copyto "m:$bucket/odd/$key" "$WORK/back" || { echo "get [$key]"; return 1; }
        same "$(cat "$WORK/back")" "$key"
    done
}

all_odd_listed() {
    rc lsf --recursive --files-only "m:$bucket/odd" | LC_ALL=C sort >"$WORK/got"
    for key in "${odd_keys[@]}"; do
        case $key in *//* | *' ') continue ;; esac
        printf '%s\n' "$key"
    done | LC_ALL=C sort >"$WORK/expected"
    diff "$WORK/expected" "$WORK/got"
}

levels() {
    rc lsf "m:$bucket/odd" | grep -qx 'a/'
    rc lsf "m:$bucket/odd" | grep -qx 'a'
    same "$(rc lsf "m:$SEEDED/many" | wc -l)" 2500
    same "$(rc size --json "m:$SEEDED/many" | grep -o '"count":[0-9]*')" '"count":2500'
}

metadata() {
    rc copyto --header-upload 'Content-Type: text/x-margay' --header-upload 'X-Amz-Meta-Colour: green' "$FILES/hello" "m:$bucket/meta"
    rc lsjson --metadata "m:$bucket/meta" >"$WORK/meta"
    grep -q text/x-margay "$WORK/meta" && grep -q '"colour":"green"' "$WORK/meta" || {
        cat "$WORK/meta"
        return 1
    }
}

modified_time() {
    touch -d '2001-02-03T04:05:06.789Z' "$WORK/old"
    rc copyto "$WORK/old" "m:$bucket/old"
    rc lsl "m:$bucket/old" | grep -q '2001-02-03 04:05:06'
}

move_and_copy() {
    rc copyto "m:$bucket/100k" "m:$bucket/copied/100k"
    rc moveto "m:$bucket/copied/100k" "m:$bucket/moved/100k+%"
    rc cat "m:$bucket/moved/100k+%" | cmp - "$FILES/100k"
    same "$(rc lsf "m:$bucket/copied" 2>/dev/null || true)" ''
}

ranged_get() {
    rc cat --offset 1000 --count 1000 "m:$bucket/100k" | cmp - <(tail -c +1001 "$FILES/100k" | head -c 1000)
}

sync_and_check() {
    rc sync "$FILES/tree" "m:$bucket/sync"
    rc check --download "$FILES/tree" "m:$bucket/sync"
    rc check "$FILES/tree" "m:$bucket/sync"
    rm -rf "$WORK/down"
    rc sync "m:$bucket/sync" "$WORK/down"
    diff -r "$FILES/tree" "$WORK/down"
    rc sync -v "$FILES/tree" "m:$bucket/sync" 2>&1 | grep -q 'There was nothing to transfer'
    rm "$WORK/down/file 7.txt"
    rc sync "$WORK/down" "m:$bucket/sync"
    same "$(rc lsf "m:$bucket/sync" | grep -c 'file 7.txt' || true)" 0
}

server_side_tree() {
    rc copy "m:$bucket/sync" "m:$bucket/sync copy"
    rc check "m:$bucket/sync" "m:$bucket/sync copy"
    rc move "m:$bucket/sync copy" "m:$bucket/sync moved"
    rc check "m:$bucket/sync" "m:$bucket/sync moved"
}

remove_tree() {
    rc delete "m:$bucket/sync moved"
    same "$(rc lsf --recursive "m:$bucket/sync moved" 2>/dev/null || true)" ''
    rc deletefile "m:$bucket/one"
    same "$(rc lsf "m:$bucket" | grep -cx one || true)" 0
}

errors() {
    fails_with 'not found' rc lsf "m:$bucket-none"
    fails_with InvalidAccessKeyId rc --s3-access-key-id NOSUCHKEYNOSUCHKEY00 lsf "m:$bucket"
    fails_with SignatureDoesNotMatch rc --s3-secret-access-key wrong lsf "m:$bucket"
    fails_with BucketNotEmpty rc rmdir "m:$bucket"
}

check 'make bucket' rc mkdir "m:$bucket"
check 'put and get 0 bytes' round_trip "$FILES/empty" empty
check 'put and get 1 byte' round_trip "$FILES/one" one
check 'put and get 100 KiB' round_trip "$FILES/100k" 100k
check 'multipart put, 24 MiB' round_trip "$FILES/large" large
check 'odd keys' odd_keys_round_trip
check 'all odd keys listed' all_odd_listed
check 'list levels and 2500 keys' levels
check 'metadata and content type' metadata
check 'modification time' modified_time
check 'copy and move' move_and_copy
check 'ranged get' ranged_get
check 'sync and check' sync_and_check
check 'copy and move a tree in the server' server_side_tree
check 'delete' remove_tree
check 'error codes' errors
check 'purge' rc purge "m:$bucket"
check 'bucket is gone' fails_with 'not found' rc lsf "m:$bucket"
finish
