#!/usr/bin/env bash
# Ceph's s3-tests against margay: S3_TESTS=CHECKOUT tests/s3-tests/run.sh [PYTEST-ARGUMENT...]
#
# S3_TESTS is a checkout of github.com/ceph/s3-tests at the commit below; nothing of it is kept here. MARGAY_BIN names the
# program to test (default: target/release/margay). S3_TESTS_WORKERS (default 3) servers with users of their own run side by
# side, each under one pytest worker. S3_TESTS_KEEP=DIR keeps outcomes.tsv and the logs there. All cases take about ten minutes on
# two cores, and one of them waits a quarter of an hour for its keys to end; S3_TESTS_SHARD=1/3 runs every third of them, 2/3 and 3/3 the others.
# Every case counts but those marked fails_on_aws; the ones known to fail stand in known-failures.txt, each with its reason.
# With arguments (files, -k WORDS) only these cases run and nothing is compared.

set -u
commit=8f0ae7b404a3a2fcf7038bf1e6bf29544fe9b6a3
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
margay=${MARGAY_BIN:-$target/release/margay}
workers=${S3_TESTS_WORKERS:-3}
venv=$target/s3-tests-venv

[ -n "${S3_TESTS:-}" ] || { echo 'skipped: s3-tests, because S3_TESTS names no checkout of github.com/ceph/s3-tests'; exit 0; }
checkout=$(cd "$S3_TESTS" && pwd) || exit 1
[ -x "$margay" ] || { echo "there is no $margay; build it, or set MARGAY_BIN"; exit 1; }
actual=$(git -C "$checkout" rev-parse HEAD 2>/dev/null)
[ "$actual" = "$commit" ] || echo "the checkout is at ${actual:-an unknown commit}, the list of failures is for $commit"

work=$(mktemp -d "${TMPDIR:-/tmp}/margay-s3-tests.XXXXXX")
pids=()
clean_up() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    wait
    if [ -n "${S3_TESTS_KEEP:-}" ]; then
        mkdir -p "$S3_TESTS_KEEP"
        cp "$work"/*.tsv "$work"/*.log "$S3_TESTS_KEEP"
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# --- servers and their users ------------------------------------------------------------------------------------

free_port() { python3 "$here/../ports.py"; }

# The cases of AssumeRoleWithWebIdentity name this port and path themselves, so of several runs at once one has them.
provider_port=8080 issuer=http://localhost:8080/auth/realms/demo

root_access=S3TESTSROOTROOTROOT0 root_secret=s3-tests-root-secret-s3-tests-root-secret

# start_server NAME PORT: the log is $work/NAME.log.
start_server() {
    local name=$1 port=$2 try key
    mkdir -p "$work/$name"
    for key in '' 'testkey-1 ' 'testkey-2 '; do
        echo "$key$(sha256sum <<<"$name $key" | cut -d ' ' -f 1)"
    done >"$work/$name/encryption-keys"
    # The cases send keys of their own (SSE-C) without TLS, and their S3 Select is Ceph's.
    env -u MARGAY_BIN -u S3_TESTS MARGAY_ACCESS_KEY=$root_access MARGAY_SECRET_KEY=$root_secret MARGAY_ENCRYPTION_CUSTOMER_KEYS=any \
        MARGAY_SELECT_DIALECT=ceph MARGAY_OIDC_ISSUER=$issuer MARGAY_OIDC_AUDIENCE=account \
        "$margay" serve --data "$work/$name" --address "127.0.0.1:$port" --admin-address off >"$work/$name.log" 2>&1 </dev/null &
    pids+=($!)
    for try in $(seq 1 150); do
        curl -sS --fail -o /dev/null "http://127.0.0.1:$port/-/health" 2>/dev/null && return 0
        sleep 0.2
    done
    echo "the server did not start:"
    tail -n 20 "$work/$name.log"
    return 1
}

# start_provider: writes its tokens to $work/webidentity when it listens.
start_provider() {
    local try
    touch "$work/webidentity"
    "$venv/bin/python" "$here/provider.py" "$provider_port" "$work/webidentity" >"$work/provider.log" 2>&1 </dev/null &
    pids+=($!)
    for try in $(seq 1 100); do
        [ -s "$work/webidentity" ] && return
        kill -0 "${pids[-1]}" 2>/dev/null || break
        sleep 0.2
    done
    echo "there is no identity provider, so its cases fail: $(tail -n 1 "$work/provider.log")"
}

# The users that s3-tests wants, as SECTION:NAME. Each is an account of its own but `alt`: cases of IAM give that one policies, so he is
# a user of the account `iam`, called by its canonical id, which access lists name him by. The suite takes the canonical ids of the two
# accounts that act as their roots for their account ids.
users=('s3 main:main' 'iam:iam' 's3 alt:alt' 'iam root:first' 'iam alt root:second' 's3 tenant:tenant')

# A server of one user only: that one is all of them.
alone=
"$margay" user --help >/dev/null 2>&1 || alone=1

# make_user SERVER NAME: an account with keys and ids made of its name; `alt` comes after `iam`.
make_user() {
    local data=$work/$1 name=$2
    [ -z "$alone" ] || return 0
    if [ "$name" = alt ]; then
        secret_of alt | "$margay" user create "$(canonical_of alt)" --data "$data" --of iam --access-key "$(access_of alt)" --secret-file - &&
            "$margay" policy attach arn:aws:iam::aws:policy/AdministratorAccess --user "$(canonical_of alt)" --data "$data"
        return
    fi
    local arns=()
    # Cases of roles and web identities want the ARNs of the account `iam` as Ceph writes those of an old-style user.
    [ "$name" != iam ] || arns=(--short-arns)
    secret_of "$name" | "$margay" user create "$name" --data "$data" --account "${arns[@]}" --account-id "$(account_of "$name")" \
        --canonical-id "$(canonical_of "$name")" --display-name "$name" --email "$name@example.com" --access-key "$(access_of "$name")" --secret-file -
}
account_of() { printf '%012d' "$(cksum <<<"$1" | cut -d ' ' -f 1)"; }
access_of() { if [ -n "$alone" ]; then echo $root_access; else printf 'S3TESTS%013d' "$(cksum <<<"$1" | cut -d ' ' -f 1)"; fi; }
secret_of() { if [ -n "$alone" ]; then echo $root_secret; else printf 's3-tests-secret-%s' "$(sha256sum <<<"$1" | cut -c 1-24)"; fi; }
canonical_of() {
    case $1 in
        alt) canonical_of iam ;;
        first | second) account_of "$1" ;;
        *) printf '%s' "$1" | sha256sum | cut -d ' ' -f 1 ;;
    esac
}

# write_conf PORT: what s3-tests is told about a server and its users, on stdout.
write_conf() {
    local entry user account
    printf '[DEFAULT]\nhost = 127.0.0.1\nport = %s\nis_secure = False\nssl_verify = False\n' "$1"
    printf '[fixtures]\nbucket prefix = s3t-{random}-\niam name prefix = s3-tests-\niam path prefix = /s3-tests/\n'
    for entry in "${users[@]}"; do
        user=${entry#*:} account=${entry#*:}
        [ "$user" != alt ] || account=iam
        printf '[%s]\ndisplay_name = %s\nuser_id = %s\nemail = %s@example.com\n' "${entry%:*}" "$account" "$(canonical_of "$user")" "$account"
        printf 'access_key = %s\nsecret_key = %s\n' "$(access_of "$user")" "$(secret_of "$user")"
        # Seconds that cases of expiry wait for a day; the only one that counts fails for another reason.
        [ "$user" != main ] || echo 'lc_debug_interval = 1'
    done
    echo 'tenant = testx' # belongs to the last section
    cat "$work/webidentity"
}

# --- run --------------------------------------------------------------------------------------------------------

if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" &&
        cp "$here/requirements.txt" "$venv/" || { echo 'pip cannot install what s3-tests needs'; exit 1; }
fi
start_provider
for number in $(seq 0 $((workers - 1))); do
    port=$(free_port)
    start_server "server-$number" "$port" || exit 1
    for user in "${users[@]}"; do
        make_user "server-$number" "${user#*:}" >"$work/users.log" 2>&1 || { cat "$work/users.log"; exit 1; }
    done
    write_conf "$port" >"$work/conf.gw$number"
done

unset AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy
# A case that expects an answer gets it, or not, at the first or second attempt.
export AWS_MAX_ATTEMPTS=2
export AWS_EC2_METADATA_DISABLED=true LC_ALL=C.UTF-8 PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here:$checkout
export S3TEST_CONF=$work/conf S3_TESTS_OUTCOMES=$work/outcomes.tsv
: >"$S3_TESTS_OUTCOMES"
cases=("$@")
[ $# -gt 0 ] || cases=(s3tests/functional)
(cd "$checkout" && "$venv/bin/python" -m pytest -p outcomes -p no:cacheprovider -n "$workers" --timeout 1200 --quiet --no-header --tb short "${cases[@]}") \
    >"$work/pytest.log" 2>&1
if [ $# -gt 0 ]; then
    cat "$work/pytest.log"
else
    python3 "$here/compare.py" "$S3_TESTS_OUTCOMES" "$here/known-failures.txt" ${S3_TESTS_SHARD:+some}
fi
