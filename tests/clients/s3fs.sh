#!/usr/bin/env bash
# s3fs (a FUSE mount) against $ENDPOINT; started by run.sh.
. "$(dirname "$0")/checks.sh"

bucket=clients-s3fs
mount=$WORK/mount
printf '%s:%s\n' "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" >"$WORK/passwd"
chmod 600 "$WORK/passwd"
mkdir -p "$mount"

curl_s3() {
    curl -sS --fail-with-body --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
        -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$@"
}

mount_it() {
    s3fs "$bucket" "$mount" -f -o "url=$ENDPOINT,use_path_request_style,passwd_file=$WORK/passwd,retries=1,endpoint=us-east-1,multipart_size=5,singlepart_copy_limit=16" \
        >"$WORK/s3fs.log" 2>&1 &
    echo $! >"$WORK/s3fs.pid"
    local try
    for try in $(seq 1 300); do
        mountpoint -q "$mount" && return 0
        kill -0 "$(cat "$WORK/s3fs.pid")" 2>/dev/null || break
        sleep 0.2
    done
    cat "$WORK/s3fs.log"
    return 1
}

unmount_it() {
    fusermount3 -u "$mount" 2>/dev/null || fusermount -u "$mount" 2>/dev/null || umount "$mount"
    local try
    for try in $(seq 1 300); do
        kill -0 "$(cat "$WORK/s3fs.pid")" 2>/dev/null || return 0
        sleep 0.2
    done
    return 1
}

leave() {
    mountpoint -q "$mount" && { umount -l "$mount" 2>/dev/null || true; }
    return 0
}
trap leave EXIT

copy_tree() {
    cp -r "$FILES/tree" "$mount/tree"
    diff -r "$FILES/tree" "$mount/tree"
}

sums() {
    same "$(cd "$mount/tree" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum)" \
        "$(cd "$FILES/tree" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum)"
}

big_file() {
    cp "$FILES/large" "$mount/large"
    sync -f "$mount/large"
    same "$(md5sum <"$mount/large")" "$(md5sum <"$FILES/large")"
}

append_and_overwrite() {
    printf 'one\n' >"$mount/text"
    printf 'two\n' >>"$mount/text"
    same "$(cat "$mount/text")" "$(printf 'one\ntwo')"
    printf 'three\n' >"$mount/text"
    same "$(cat "$mount/text")" three
}

moves() {
    mv "$mount/text" "$mount/tree/moved text"
    same "$(cat "$mount/tree/moved text")" three
    [ ! -e "$mount/text" ]
    mv "$mount/tree" "$mount/renamed"
    rm "$mount/renamed/moved text"
    diff -r "$FILES/tree" "$mount/renamed"
    [ ! -e "$mount/tree" ]
}

attributes() {
    chmod 640 "$mount/large"
    same "$(stat -c %a "$mount/large")" 640
    touch -d '2001-02-03T04:05:06Z' "$mount/large"
    same "$(stat -c %Y "$mount/large")" 981173106
    ln -s large "$mount/link"
    same "$(readlink "$mount/link")" large
}

seen_through_s3() {
    same "$(curl_s3 "$ENDPOINT/$bucket/renamed/file%201.txt")" 'file 1'
    curl_s3 -X PUT --data-binary 'by s3' "$ENDPOINT/$bucket/by-s3"
    same "$(cat "$mount/by-s3")" 'by s3'
}

remount() {
    unmount_it
    mount_it
    diff -r "$FILES/tree" "$mount/renamed"
}

removal() {
    rm -r "$mount/renamed"
    [ ! -e "$mount/renamed" ]
    rm "$mount/large" "$mount/link" "$mount/by-s3"
    same "$(ls -A "$mount")" ''
}

check 'make bucket' curl_s3 -X PUT "$ENDPOINT/$bucket"
check 'mount' mount_it
if ! mountpoint -q "$mount"; then
    finish
fi
check 'copy a tree' copy_tree
check 'list' bash -c "[ \$(ls '$mount/tree' | wc -l) = 41 ]"
check 'md5sum' sums
check 'multipart file, 24 MiB' big_file
check 'append and overwrite' append_and_overwrite
check 'move a file and a directory' moves
check 'mode, time, symlink' attributes
check 'same through S3, both ways' seen_through_s3
check 'df' df "$mount"
check 'mount again' remount
check 'rm -r' removal
check 'unmount' unmount_it
check 'remove bucket' curl_s3 -X DELETE "$ENDPOINT/$bucket"
finish
