#!/usr/bin/env bash
# Starts a server and runs every flow of the console in Chromium, with axe and a list of attacks.
#
# Without chromium, node or npm it is skipped by name. CONSOLE_KEYS=1000000 scrolls through a folder of a million names; SHOTS=DIR keeps
# pictures of the pages; ONLY=NAME,... runs some of the steps; CONSOLE_DATA=DIR serves a data directory that is there, with ACCESS_KEY and SECRET_KEY.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-${MARGAY_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}")/release/margay}}
export CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
for tool in node npm; do
    command -v "$tool" >/dev/null || { echo "client console: skipped: no $tool"; exit 0; }
done
[ -n "$CHROMIUM" ] || { echo 'client console: skipped: no chromium'; exit 0; }

modules=$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}")/console-modules
if ! cmp -s "$here/package-lock.json" "$modules/package-lock.json" || [ ! -d "$modules/node_modules" ]; then
    mkdir -p "$modules"
    cp "$here/package.json" "$here/package-lock.json" "$modules"
    (cd "$modules" && npm ci --no-audit --no-fund --ignore-scripts >npm.log 2>&1) || { echo "client console: skipped: npm cannot install its packages: $(tail -n 1 "$modules/npm.log")"; exit 0; }
fi
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf --one-file-system "$work" || true' EXIT
cp "$here"/*.mjs "$work"
ln -s "$modules/node_modules" "$work/node_modules"
export ACCESS_KEY=${ACCESS_KEY:-consoleroot} SECRET_KEY=${SECRET_KEY:-a-secret-of-the-console}
export MARGAY=$binary DATA=${CONSOLE_DATA:-$work/data}
# A target for notifications at which nobody listens: rules may name it.
echo 'notify = ["nowhere=http://127.0.0.1:9/"]' >"$work/margay.toml"
MARGAY_ACCESS_KEY=$ACCESS_KEY MARGAY_SECRET_KEY=$SECRET_KEY "$binary" serve --config "$work/margay.toml" --data "$DATA" \
    --address 127.0.0.1:0 --admin-address 127.0.0.1:0 >"$work/screen" 2>"$work/log" &
server=$!
until grep -qs Ctrl-C "$work/screen"; do
    kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
    sleep 0.1
done
CONSOLE_URL=$(awk '$1 == "console" { print $2 }' "$work/screen")
S3_ADDRESS=$(awk '$1 == "S3" { sub("http://", "", $2); print $2 }' "$work/screen")
export CONSOLE_URL S3_ADDRESS KEYS=${CONSOLE_KEYS:-3000}
# What its steps upload goes with the folder. (What is left of the browser may still write there: that is no failure.)
TMPDIR=$work node "$work/run.mjs"
