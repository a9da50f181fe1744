#!/usr/bin/env bash
# Real S3 clients against a margay of its own: tests/clients/run.sh [CLIENT...]
#
# Clients: s3cmd s3cmd-v2 aws boto3 auth rclone s3fs curl mc javascript browser restic go-aws go-minio java s3a pyarrow obstore deltalake
# libcloud fsspec fsspec-old tls; all of them unless some are named.
# MARGAY_BIN names the program to test (default: target/release/margay, built when missing);
# CLIENTS_ENDPOINT with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY tests a server that runs already (without tls).
# CLIENTS_KEEP=1 keeps the work directory. Tools that are missing are installed by install.sh with apt-get (as root), pip, npm, go and
# mvn, the last four into the target directory; a client whose tool cannot be had is skipped, and says why.
# Prints one line per client and ends with `clients: X of Y passed`; exits with 1 when one failed.

set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
export VENV=$target/clients-venv NODE_MODULES=$target/clients-javascript MC=$target/clients-mc/bin/mc JARS=$target/clients-jars BROWSER=chromium
all=(s3cmd s3cmd-v2 aws boto3 auth rclone s3fs curl mc javascript browser restic)
all+=(go-aws go-minio java s3a pyarrow obstore deltalake libcloud fsspec fsspec-old tls)
clients=("$@")
[ $# -gt 0 ] || clients=("${all[@]}")

work=$(mktemp -d "${TMPDIR:-/tmp}/margay-clients.XXXXXX")
server_pid=
stop_server() {
    [ -n "$server_pid" ] || return 0
    kill "$server_pid" 2>/dev/null
    wait "$server_pid" 2>/dev/null
    server_pid=
}
clean_up() {
    stop_server
    if [ -n "${CLIENTS_KEEP:-}" ]; then echo "kept $work"; else rm -rf "$work"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

. "$here/install.sh"

# --- server -----------------------------------------------------------------------------------------------------

free_port() { python3 "$here/../ports.py"; }

# start_server NAME SCHEME [ARGUMENT...]: sets server_pid, HOST, ENDPOINT and the domain WEBSITE; its data and log are in $work/NAME.
start_server() {
    local name=$1 scheme=$2 port try
    shift 2
    port=$(free_port)
    export HOST=127.0.0.1:$port ENDPOINT=$scheme://127.0.0.1:$port WEBSITE=website.test
    env -u MARGAY_BIN -u MARGAY_ENDPOINT MARGAY_ACCESS_KEY="$AWS_ACCESS_KEY_ID" MARGAY_SECRET_KEY="$AWS_SECRET_ACCESS_KEY" MARGAY_WEBSITE_DOMAIN=$WEBSITE \
        "$margay" serve --data "$work/$name" --address "$HOST" --admin-address off "$@" >"$work/$name.log" 2>&1 </dev/null &
    server_pid=$!
    for try in $(seq 1 600); do
        if curl -sS -k --fail -o /dev/null "$ENDPOINT/-/health" 2>/dev/null; then return 0; fi
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.2
    done
    echo "the server did not start: $margay serve"
    tail -n 30 "$work/$name.log"
    return 1
}

# A server that died under a client is a failure of that client, and the next one needs another.
server_alive() { [ -z "$server_pid" ] || kill -0 "$server_pid" 2>/dev/null; }

make_certificates() {
    mkdir -p "$work/tls"
    (
        cd "$work/tls" || exit 1
        for authority in ca other; do
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=clients $authority" \
                -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
                -keyout "$authority.key" -out "$authority.pem"
        done
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key -out server.csr
        printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n' >server.ext
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem
    ) >"$work/tls.log" 2>&1
}

# --- run --------------------------------------------------------------------------------------------------------

passed=0 ran=0 failed=0
run_client() {
    local name=$1 reason log=$work/$1.out status good bad
    reason=$(missing "$name" 2>&1)
    if [ -n "$reason" ]; then
        echo "client $name: skipped: ${reason//$'\n'/, }"
        return
    fi
    ran=$((ran + 1))
    export WORK=$work/client-$name
    mkdir -p "$WORK"
    local started=$SECONDS
    case $name in
        boto3 | auth | browser) "$VENV/bin/python" "$here/${name}_checks.py" ;;
        s3cmd-v2) SIGNATURE_V2=True "$here/s3cmd.sh" ;;
        javascript) cp "$here/javascript/checks.mjs" "$NODE_MODULES/" && NODE_NO_WARNINGS=1 node "$NODE_MODULES/checks.mjs" ;;
        go-*) "$target/clients-go/${name#go-}" ;;
        java) java -cp "$JARS/*" "$here/java/AwsChecks.java" ;;
        s3a) java -cp "$JARS/*" "$here/java/S3aChecks.java" ;;
        pyarrow | obstore | deltalake | libcloud) "$VENV-data/bin/python" "$here/${name}_checks.py" ;;
        fsspec | fsspec-old) "$VENV-$name/bin/python" -W ignore "$here/fsspec_checks.py" ;;
        *) "$here/$name.sh" ;;
    esac >"$log" 2>&1
    status=$?
    good=$(grep -c '^ok ' "$log")
    bad=$(grep -c '^not ok ' "$log")
    if [ "$status" -eq 0 ] && [ "$bad" -eq 0 ] && [ "$good" -gt 0 ] && server_alive; then
        passed=$((passed + 1))
        echo "client $name: $good checks passed ($((SECONDS - started)) s)"
    else
        failed=$((failed + 1))
        echo "client $name: FAILED, $bad of $((good + bad)) checks (exit $status)"
        sed 's/^/  /' "$log" | grep -v '^  ok '
        server_alive || { echo "  the server died:"; tail -n 20 "$work/server.log" | sed 's/^/    /'; }
    fi
    rm -rf "$WORK"
}

tool python3 python3 || { echo 'python3 is missing'; exit 1; }
tool curl curl || { echo 'curl is missing'; exit 1; }
python_tools requirements "$VENV" || { echo 'pip cannot install the python clients'; exit 1; }
unset AWS_CA_BUNDLE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL
unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy
export AWS_DEFAULT_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true LC_ALL=C.UTF-8 PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE=1
export FILES=$work/files SEEDED=clients-seeded
mkdir -p "$FILES"
. "$here/files.sh"

plain=0
for client in "${clients[@]}"; do [ "$client" = tls ] || plain=1; done
if [ -n "${CLIENTS_ENDPOINT:-}" ]; then
    : "${AWS_ACCESS_KEY_ID:?}" "${AWS_SECRET_ACCESS_KEY:?}"
    export ENDPOINT=$CLIENTS_ENDPOINT HOST=${CLIENTS_ENDPOINT#*://} AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
else
    margay=${MARGAY_BIN:-$target/release/margay}
    [ -x "$margay" ] || (cd "$root" && cargo build --release) || exit 1
    export AWS_ACCESS_KEY_ID=CLIENTSCLIENTSCLIENT AWS_SECRET_ACCESS_KEY=clients/secret+clients/secret+clientsABCD
    if [ $plain = 1 ]; then start_server server http || exit 1; fi
fi

if [ $plain = 1 ]; then
    if ! "$VENV/bin/python" "$here/seed.py" >"$work/seed.log" 2>&1; then
        echo "the bucket of 2500 keys cannot be made:"
        tail -n 5 "$work/seed.log"
    fi
    for client in "${clients[@]}"; do
        [ "$client" = tls ] || run_client "$client"
        server_alive || start_server server http || exit 1
    done
    "$VENV/bin/python" "$here/seed.py" remove >"$work/seed.log" 2>&1 || { echo "the bucket of 2500 keys cannot be removed:"; tail -n 5 "$work/seed.log"; failed=$((failed + 1)); }
fi

for client in "${clients[@]}"; do
    [ "$client" = tls ] || continue
    stop_server
    if [ -z "${CLIENTS_ENDPOINT:-}" ]; then
        make_certificates || { echo 'openssl made no certificates'; cat "$work/tls.log"; exit 1; }
        start_server tls-server https --tls-certificate "$work/tls/server.pem" --tls-key "$work/tls/server.key" || exit 1
        export CA=$work/tls/ca.pem OTHER_CA=$work/tls/other.pem MARGAY=$margay
    fi
    run_client tls
done

echo "clients: $passed of $ran passed"
[ "$failed" -eq 0 ] && [ "$ran" -gt 0 ]
