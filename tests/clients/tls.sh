#!/usr/bin/env bash
# The clients whose TLS is tested, against an https $ENDPOINT whose certificate $CA signed; started by run.sh.
#
# Each one first has to refuse the server without $CA: a client that accepts anything proves nothing.
. "$(dirname "$0")/checks.sh"

aws="$VENV/bin/aws --endpoint-url $ENDPOINT"
export AWS_CONFIG_FILE=$WORK/config AWS_SHARED_CREDENTIALS_FILE=$WORK/none AWS_MAX_ATTEMPTS=1
printf '[default]\ns3 =\n  addressing_style = path\n  multipart_threshold = 8MB\n  multipart_chunksize = 5MB\n' >"$AWS_CONFIG_FILE"
cat >"$WORK/s3cfg" <<END
[default]
access_key = $AWS_ACCESS_KEY_ID
secret_key = $AWS_SECRET_ACCESS_KEY
host_base = $HOST
host_bucket = $HOST
bucket_location = us-east-1
use_https = True
multipart_chunk_size_mb = 5
max_retries = 1
END
configure_rclone

# What each client does to an object; $1 is the verb, $2 a file, $3 a key.
aws_do() {
    case $1 in
        make) AWS_CA_BUNDLE=$CA $aws s3 mb "s3://$bucket" ;;
        put) AWS_CA_BUNDLE=$CA $aws s3 cp --only-show-errors "$2" "s3://$bucket/$3" ;;
        get) AWS_CA_BUNDLE=$CA $aws s3 cp --only-show-errors "s3://$bucket/$3" "$2" ;;
        list) AWS_CA_BUNDLE=$CA $aws s3 ls "s3://$bucket/" ;;
        remove) AWS_CA_BUNDLE=$CA $aws s3 rb --force "s3://$bucket" ;;
        distrust) AWS_CA_BUNDLE=$OTHER_CA $aws s3 ls ;;
    esac
}
s3cmd_do() {
    local s3="s3cmd -c $WORK/s3cfg --no-progress --ca-certs $CA"
    case $1 in
        make) $s3 mb "s3://$bucket" ;;
        put) $s3 put "$2" "s3://$bucket/$3" ;;
        get) $s3 get --force "s3://$bucket/$3" "$2" ;;
        list) $s3 ls "s3://$bucket/" ;;
        remove) $s3 rb --recursive --force "s3://$bucket" ;;
        distrust) s3cmd -c "$WORK/s3cfg" --ca-certs "$OTHER_CA" ls ;;
    esac
}
rclone_do() {
    local rc="rclone --retries 1 --low-level-retries 1 --ca-cert $CA"
    case $1 in
        make) $rc mkdir "m:$bucket" ;;
        put) $rc copyto "$2" "m:$bucket/$3" ;;
        get) $rc copyto "m:$bucket/$3" "$2" ;;
        list) $rc lsl "m:$bucket" ;;
        remove) $rc purge "m:$bucket" ;;
        distrust) rclone --retries 1 --low-level-retries 1 --ca-cert "$OTHER_CA" lsf m: ;;
    esac
}

for client in aws s3cmd rclone; do
    bucket=clients-tls-$client # its own, so that what one leaves behind is not held against the next
    do_it() { "${client}_do" "$@"; }
    round_trip() {
        rm -f "$WORK/back"
        do_it put "$1" "$2"
        do_it get "$WORK/back" "$2"
        cmp "$1" "$WORK/back"
    }
    refuses() {
        if do_it distrust >"$WORK/refusal" 2>&1; then
            echo 'accepted a certificate of an unknown authority'
            return 1
        fi
        grep -qi certificat "$WORK/refusal" || { cat "$WORK/refusal"; return 1; }
    }
    listed() { do_it list | grep -q 'with space'; }
    check "$client: unknown authority refused" refuses
    check "$client: make bucket" do_it make
    check "$client: 0 bytes" round_trip "$FILES/empty" empty
    check "$client: 100 KiB, odd key" round_trip "$FILES/100k" 'with space+plus%'
    check "$client: multipart, 24 MiB" round_trip "$FILES/large" large
    check "$client: list" listed
    check "$client: remove everything" do_it remove
done
check 'request in one segment with the end of the handshake' python3 "$(dirname "$0")/tls_quick.py"
check 'identity provider over https, with its authority and with another' python3 "$(dirname "$0")/tls_provider.py" "$MARGAY" "$(dirname "$CA")"
check 'curl' curl -sS --fail --cacert "$CA" --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$ENDPOINT/"
check 'curl over HTTP/2' bash -c "[ \$(curl -sS --http2 --fail --cacert '$CA' --aws-sigv4 aws:amz:us-east-1:s3 --user '$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY' -o /dev/null -w '%{http_version}' '$ENDPOINT/') = 2 ]"
finish
