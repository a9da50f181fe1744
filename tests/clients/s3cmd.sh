#!/usr/bin/env bash
# s3cmd against $ENDPOINT; started by run.sh, for Signature Version 2 with SIGNATURE_V2=True.
. "$(dirname "$0")/checks.sh"

bucket=clients-s3cmd${SUFFIX:-}
secure=False
[ "${ENDPOINT#https}" = "$ENDPOINT" ] || secure=True

# write_config FILE ACCESS SECRET
write_config() {
    cat >"$1" <<END
[default]
access_key = $2
secret_key = $3
host_base = $HOST
host_bucket = $HOST
bucket_location = us-east-1
use_https = $secure
signurl_use_https = $secure
signature_v2 = ${SIGNATURE_V2:-False}
ca_certs_file = ${CA:-}
multipart_chunk_size_mb = 5
max_retries = 1
END
}
write_config "$WORK/s3cfg" "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY"
write_config "$WORK/s3cfg-unknown" NOSUCHKEYNOSUCHKEY00 "$AWS_SECRET_ACCESS_KEY"
write_config "$WORK/s3cfg-wrong" "$AWS_ACCESS_KEY_ID" wrong

s3() { s3cmd -c "$WORK/s3cfg" --no-progress "$@"; }

round_trip() {
    rm -f "$WORK/back"
    s3 put "$1" "s3://$bucket/$2"
    s3 get --force "s3://$bucket/$2" "$WORK/back"
    cmp "$1" "$WORK/back"
}

odd_key() {
    printf '%s' "$1" >"$WORK/odd"
    s3 put "$WORK/odd" "s3://$bucket/odd/$1"
    s3 get --force "s3://$bucket/odd/$1" "$WORK/back"
    same "$(cat "$WORK/back")" "$1"
}

all_odd_listed() {
    s3 ls --recursive "s3://$bucket/odd/" | sed 's|.*s3://[^/]*/odd/||' | LC_ALL=C sort >"$WORK/got"
    printf '%s\n' "${odd_keys[@]}" | LC_ALL=C sort >"$WORK/expected"
    diff "$WORK/expected" "$WORK/got"
}

metadata() {
    s3 put --add-header=x-amz-meta-colour:green --mime-type=text/x-margay "$FILES/hello" "s3://$bucket/meta"
    s3 info "s3://$bucket/meta" >"$WORK/info"
    grep -q 'MIME type: *text/x-margay' "$WORK/info" && grep -qi 'x-amz-meta-colour: *green' "$WORK/info" || {
        cat "$WORK/info"
        return 1
    }
}

levels() {
    same "$(s3 ls "s3://$bucket/odd/" | grep -c DIR)" 3 # a/, ünïcödé/, 'two  spaces/'
    same "$(s3 ls "s3://$bucket/odd/a/" | sed 's|.*/odd/||')" "$(printf 'a//\na/b')"
}

copy_and_move() {
    s3 cp "s3://$bucket/100k" "s3://$bucket/copy of 100k"
    s3 mv "s3://$bucket/copy of 100k" "s3://$bucket/moved/100k+"
    s3 get --force "s3://$bucket/moved/100k+" "$WORK/back"
    cmp "$FILES/100k" "$WORK/back"
    fails_with 404 s3 info "s3://$bucket/copy of 100k"
}

continued_get() {
    head -c 50000 "$FILES/100k" >"$WORK/part"
    s3 get --continue "s3://$bucket/100k" "$WORK/part"
    cmp "$FILES/100k" "$WORK/part"
}

sync_up_and_down() {
    s3 sync "$FILES/tree/" "s3://$bucket/sync/"
    rm -rf "$WORK/down" && mkdir "$WORK/down"
    s3 sync "s3://$bucket/sync/" "$WORK/down/"
    diff -r "$FILES/tree" "$WORK/down"
}

sync_is_idle() { same "$(s3 sync "$FILES/tree/" "s3://$bucket/sync/" | grep -c '^upload:')" 0; }

sync_deletes() {
    rm "$WORK/down/file 7.txt"
    s3 sync --delete-removed "$WORK/down/" "s3://$bucket/sync/"
    same "$(s3 ls --recursive "s3://$bucket/sync/" | grep -c 'file 7.txt')" 0
}

usage() { s3 du "s3://$bucket/sync/" | grep -E '^ *[0-9]+ +[0-9]+ objects'; }

# s3cmd signs URLs in Version 2 only.
signed_url() {
    local url
    url=$(s3 signurl "s3://$bucket/odd/plus+plus" +60)
    same "$(curl -sS --fail ${CA:+--cacert "$CA"} "$url")" plus+plus
    same "$(curl -sS -o /dev/null -w '%{http_code}' ${CA:+--cacert "$CA"} "${url/plus/plum}")" 403
    url=$(s3 --content-type=text/x-cat --content-disposition='attachment; filename="a b"' signurl "s3://$bucket/odd/ünïcödé/日本語" +60)
    curl -sS --fail -D "$WORK/head" -o /dev/null ${CA:+--cacert "$CA"} "$url"
    grep -qi '^content-type: text/x-cat' "$WORK/head"
    grep -qi '^content-disposition: attachment; filename="a b"' "$WORK/head"
    url=$(s3 signurl "s3://$bucket/odd/a" $(($(date +%s) - 1)))
    fails_with 403 curl -sS --fail ${CA:+--cacert "$CA"} "$url"
}

website() {
    s3 ws-create --ws-index=index.html --ws-error=oops.html "s3://$bucket"
    s3 ws-info "s3://$bucket" | grep -q '^Error document: *oops.html$'
    s3 ws-delete "s3://$bucket"
}

remove_many() {
    s3 del --recursive --force "s3://$bucket/"
    same "$(s3 ls --recursive "s3://$bucket/" | wc -l)" 0
}

check 'make bucket' s3 mb "s3://$bucket"
check 'bucket is listed' bash -c "s3cmd -c '$WORK/s3cfg' ls | grep -q 's3://$bucket\$'"
check 'put and get 0 bytes' round_trip "$FILES/empty" empty
check 'put and get 1 byte' round_trip "$FILES/one" one
check 'put and get 100 KiB' round_trip "$FILES/100k" 100k
check 'multipart put, 24 MiB' round_trip "$FILES/large" large
for key in "${odd_keys[@]}"; do
    check "key [$key]" odd_key "$key"
done
check 'all odd keys listed' all_odd_listed
check 'list by delimiter' levels
check 'list 2500 keys' bash -c "[ \$(s3cmd -c '$WORK/s3cfg' ls s3://$SEEDED/many/ | wc -l) = 2500 ]"
check 'list prefix of 2500 keys' bash -c "[ \$(s3cmd -c '$WORK/s3cfg' ls s3://$SEEDED/many/00001 | wc -l) = 10 ]"
check 'metadata and content type' metadata
check 'copy and move' copy_and_move
check 'ranged get (--continue)' continued_get
check 'sync up and down' sync_up_and_down
check 'sync again does nothing' sync_is_idle
check 'sync --delete-removed' sync_deletes
check 'du' usage
check 'signed URL' signed_url
check 'website configuration' website
check 'NoSuchKey' fails_with 'does not exist' s3 get --force "s3://$bucket/nothing here" "$WORK/back"
check 'NoSuchBucket' fails_with NoSuchBucket s3 ls "s3://$bucket-none/"
check 'BucketNotEmpty' fails_with BucketNotEmpty s3 rb "s3://$bucket"
check 'InvalidAccessKeyId' fails_with InvalidAccessKeyId s3cmd -c "$WORK/s3cfg-unknown" ls "s3://$bucket/"
check 'SignatureDoesNotMatch' fails_with SignatureDoesNotMatch s3cmd -c "$WORK/s3cfg-wrong" ls "s3://$bucket/"
check 'delete one' bash -c "s3cmd -c '$WORK/s3cfg' del 's3://$bucket/one' && [ -z \"\$(s3cmd -c '$WORK/s3cfg' ls 's3://$bucket/one')\" ]"
check 'delete all' remove_many
check 'remove bucket' s3 rb "s3://$bucket"
finish
