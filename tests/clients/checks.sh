# What the client scripts share: one line per check, odd keys, rclone's settings.
#
# A script sources this file, calls `check NAME COMMAND...` and ends with `finish`.
# From run.sh: ENDPOINT, HOST (host:port), AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, WORK, FILES (made by files.sh), and CA for https.

checks_failed=0

# Runs a command or function; says `ok NAME` or `not ok NAME` with the end of its output.
check() {
    local name=$1 status
    shift
    (
        set -e
        "$@"
    ) >"$WORK/output" 2>&1 </dev/null
    status=$?
    if [ "$status" -eq 0 ]; then
        echo "ok $name"
    else
        echo "not ok $name (exit $status)"
        tail -n 25 "$WORK/output" | cut -c 1-600 | sed 's/^/    /'
        checks_failed=$((checks_failed + 1))
    fi
}

finish() {
    [ "$checks_failed" -eq 0 ]
    exit
}

# Fails unless the command fails and its output holds the text.
fails_with() {
    local text=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "succeeded, but $text was expected: $*"
        echo "$output"
        return 1
    fi
    if ! grep -qF -e "$text" <<<"$output"; then
        echo "failed without $text: $*"
        echo "$output"
        return 1
    fi
}

# Fails unless both texts are the same.
same() {
    if [ "$1" != "$2" ]; then
        printf 'got:      %s\nexpected: %s\n' "$1" "$2"
        return 1
    fi
}

# Makes the server rclone's remote `m:`.
configure_rclone() {
    # rclone's Go library takes AWS_CA_BUNDLE as its only authorities and refuses files it cannot use.
    unset AWS_CA_BUNDLE
    export RCLONE_CONFIG=$WORK/rclone.conf
    cat >"$RCLONE_CONFIG" <<END
[m]
type = s3
provider = Other
access_key_id = $AWS_ACCESS_KEY_ID
secret_access_key = $AWS_SECRET_ACCESS_KEY
endpoint = $ENDPOINT
region = us-east-1
force_path_style = true
upload_cutoff = 8M
chunk_size = 5M
END
}

# Keys that trip clients and servers; no client normalises these.
odd_keys=(
    'with space' 'two  spaces/and more ' 'plus+plus' 'per%cent' 'per%2Fcent' 'ünïcödé/日本語' 'amp&and=equals'
    'semi;colon,comma' 'hash#tag' 'question?mark=1' "quote'single" 'paren(1)[2]{3}' 'at@colon:tilde~bang!' 'star*dollar$'
    'a' 'a/b' 'a-b' 'a0' 'a//b'
)
