#!/usr/bin/env bash
# MinIO's client against $ENDPOINT; started by run.sh, which builds it from its Go module.
. "$(dirname "$0")/checks.sh"

bucket=clients-mc
export MC_CONFIG_DIR=$WORK/mc
mc() { "$MC" --quiet --no-color --disable-pager "$@"; }

round_trip() {
    rm -f "$WORK/back"
    mc cp "$1" "m/$bucket/$2"
    mc cp "m/$bucket/$2" "$WORK/back"
    cmp "$1" "$WORK/back"
}

odd_keys_round_trip() {
    local key
    for key in "${odd_keys[@]}"; do
        # mc cleans paths before it sends them.
        case $key in *//*) continue ;; esac
        mc pipe "m/$bucket/odd/$key" <<<"$key" || { echo "put [$key]"; return 1; }
        same "$(mc cat "m/$bucket/odd/$key")" "$key" || { echo "get [$key]"; return 1; }
    done
}

all_odd_listed() {
    mc ls --recursive --json "m/$bucket/odd/" | python3 -c 'import json, sys; [print(json.loads(line)["key"]) for line in sys.stdin]' >"$WORK/got"
    for key in "${odd_keys[@]}"; do
        case $key in *//*) continue ;; esac
        printf '%s\n' "$key"
    done | LC_ALL=C sort >"$WORK/expected"
    diff "$WORK/expected" "$WORK/got"
}

many() {
    same "$(mc ls "m/$SEEDED/many/" | wc -l)" 2500
    same "$(mc find "m/$SEEDED/many/" --name '00001?' | wc -l)" 10
    mc du --json "m/$SEEDED" | grep -q '"objects": *2500'
}

metadata() {
    mc cp --attr 'Content-Type=text/x-margay;Cache-Control=no-store;colour=green' "$FILES/hello" "m/$bucket/meta"
    mc stat --json "m/$bucket/meta" >"$WORK/stat"
    grep -q 'text/x-margay' "$WORK/stat" && grep -qi '"X-Amz-Meta-Colour": *"green"' "$WORK/stat" && grep -q 'no-store' "$WORK/stat"
}

copy_and_move() {
    mc cp "m/$bucket/large" "m/$bucket/copied/large"
    mc mv "m/$bucket/copied/large" "m/$bucket/moved/large"
    mc cp "m/$bucket/moved/large" "$WORK/back"
    cmp "$FILES/large" "$WORK/back"
    fails_with 'does not exist' mc stat "m/$bucket/copied/large"
}

ranged_get() { cmp <(mc cat --offset 1000 "m/$bucket/100k") <(tail -c +1001 "$FILES/100k"); }

mirror_up_and_down() {
    mc mirror "$FILES/tree" "m/$bucket/tree"
    rm -rf "$WORK/down"
    mc mirror "m/$bucket/tree" "$WORK/down"
    diff -r "$FILES/tree" "$WORK/down"
    same "$(mc diff "$FILES/tree" "m/$bucket/tree")" ''
    rm "$WORK/down/file 7.txt"
    mc mirror --remove --overwrite "$WORK/down" "m/$bucket/tree"
    same "$(mc ls "m/$bucket/tree/" | grep -c 'file 7.txt' || true)" 0
}

presigned() {
    local url
    url=$(mc share download --json --expire 1m "m/$bucket/100k" | python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())["share"])')
    curl -sS --fail -o "$WORK/back" "$url"
    cmp "$FILES/100k" "$WORK/back"
}

stream() {
    head -c 6000000 "$FILES/large" | mc pipe "m/$bucket/piped"
    cmp <(mc cat "m/$bucket/piped") <(head -c 6000000 "$FILES/large")
}

wrong_secret() {
    mc alias set wrong "$ENDPOINT" "$AWS_ACCESS_KEY_ID" wrong-secret --api S3v4
    mc ls "wrong/$bucket"
}

remove_all() {
    mc rm --recursive --force "m/$bucket"
    same "$(mc ls --recursive "m/$bucket")" ''
}

check 'alias, with a probe of the server' mc alias set m "$ENDPOINT" "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" --api S3v4
check 'make bucket' mc mb "m/$bucket"
check 'put and get 0 bytes' round_trip "$FILES/empty" empty
check 'put and get 1 byte' round_trip "$FILES/one" one
check 'put and get 100 KiB' round_trip "$FILES/100k" 100k
check 'multipart put, 24 MiB' round_trip "$FILES/large" large
check 'odd keys' odd_keys_round_trip
check 'all odd keys listed, in order' all_odd_listed
check 'list, find and du of 2500 keys' many
check 'metadata and content headers' metadata
check 'copy and move' copy_and_move
check 'ranged get' ranged_get
check 'mirror up, down, again, remove' mirror_up_and_down
check 'presigned get' presigned
check 'put from a pipe' stream
check 'wrong secret' fails_with 'signature' wrong_secret
check 'object that is not there' fails_with 'does not exist' mc stat "m/$bucket/nothing"
check 'bucket that is not empty' fails_with 'not empty' mc rb "m/$bucket"
check 'remove all' remove_all
check 'remove bucket' mc rb "m/$bucket"
finish
