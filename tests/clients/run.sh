#!/usr/bin/env bash
# Real S3 clients against a margay of its own: tests/clients/run.sh [CLIENT...]
#
# Clients: s3cmd s3cmd-v2 aws boto3 auth rclone s3fs curl mc javascript browser restic tls; all of them unless some are named.
# MARGAY_BIN names the program to test (default: target/release/margay, built when missing);
# CLIENTS_ENDPOINT with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY tests a server that runs already (without tls).
# CLIENTS_KEEP=1 keeps the work directory. Tools that are missing are installed with apt-get (as root), pip, npm and go, the
# last three into the target directory; a client whose tool cannot be had is skipped, and says why.
# Prints one line per client and ends with `clients: X of Y passed`; exits with 1 when one failed.

set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
export VENV=$target/clients-venv NODE_MODULES=$target/clients-javascript MC=$target/clients-mc/bin/mc BROWSER=chromium
clients=("$@")
[ $# -gt 0 ] || clients=(s3cmd s3cmd-v2 aws boto3 auth rclone s3fs curl mc javascript browser restic tls)

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

# --- tools ------------------------------------------------------------------------------------------------------

apt_get() {
    [ "$(id -u)" = 0 ] || { echo "installing needs root: apt-get install $*" >&2; return 1; }
    apt_updated=${apt_updated:-$(apt-get -qq update >&2 && echo yes)}
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y "$@" >"$work/apt.log" 2>&1
}
tool() { command -v "$1" >/dev/null || { apt_get "$2" && command -v "$1" >/dev/null; }; }

python_tools() {
    local stamp=$VENV/requirements.txt
    cmp -s "$here/requirements.txt" "$stamp" && return 0
    rm -rf "$VENV"
    python3 -m venv "$VENV" || { apt_get python3-venv && python3 -m venv "$VENV"; } || return 1
    "$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" && cp "$here/requirements.txt" "$stamp"
}

# MinIO's client, a program that is only run here; its version and what it is built from are fixed by Go's checksum database.
MC_MODULE=github.com/minio/mc@v0.0.0-20250313080218-cf909e1063a9
mc_tool() {
    local stamp=$target/clients-mc/module
    [ "$(cat "$stamp" 2>/dev/null)" = "$MC_MODULE" ] && [ -x "$MC" ] && return 0
    command -v go >/dev/null || { echo 'no go to build mc with'; return; }
    mkdir -p "$target/clients-mc"
    GOBIN=$target/clients-mc/bin go install "$MC_MODULE" >"$work/mc.log" 2>&1 && echo "$MC_MODULE" >"$stamp" && return 0
    echo "go cannot build $MC_MODULE: $(tail -n 1 "$work/mc.log")"
}

javascript_tool() {
    command -v node >/dev/null && command -v npm >/dev/null || { echo 'no node and npm'; return; }
    cmp -s "$here/javascript/package-lock.json" "$NODE_MODULES/package-lock.json" && return 0
    mkdir -p "$NODE_MODULES"
    cp "$here"/javascript/package*.json "$NODE_MODULES/"
    (cd "$NODE_MODULES" && npm ci --no-audit --no-fund) >"$work/npm.log" 2>&1 && return 0
    rm -f "$NODE_MODULES/package-lock.json"
    echo "npm cannot install the SDK: $(tail -n 1 "$work/npm.log")"
}

# Debian's Chromium: about 100 MB to fetch, 400 MB on disk.
browser_tool() {
    tool chromium chromium || echo 'no chromium'
}

# Says why a client cannot run here; nothing when it can.
missing() {
    case $1 in
        s3cmd | s3cmd-v2) tool s3cmd s3cmd || echo 'no s3cmd' ;;
        rclone) tool rclone rclone || echo 'no rclone' ;;
        curl) tool curl curl || echo 'no curl' ;;
        restic) tool restic restic || echo 'no restic' ;;
        mc) mc_tool ;;
        browser) browser_tool ;;
        javascript) javascript_tool ;;
        s3fs)
            tool s3fs s3fs || { echo 'no s3fs'; return; }
            tool fusermount3 fuse3 || { echo 'no fusermount3'; return; }
            [ -w /dev/fuse ] || echo '/dev/fuse cannot be opened here'
            ;;
        tls)
            [ -z "${CLIENTS_ENDPOINT:-}" ] || { echo 'the server at CLIENTS_ENDPOINT is not ours'; return; }
            tool openssl openssl || { echo 'no openssl'; return; }
            missing s3cmd
            missing rclone
            ;;
    esac
}

# --- server -----------------------------------------------------------------------------------------------------

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

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
python_tools || { echo 'pip cannot install the python clients'; exit 1; }
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
