#!/usr/bin/env bash
# Builds the site of docs/ into target/book by mdBook, and checks that each link of it leads somewhere.
#
# mdBook is that on PATH, else a wheel from PyPI (tools/site.txt), else it is compiled once (some minutes). Files outside of docs/ that
# pages link to (units, rules, boards) become part of the site.
set -euo pipefail
cd "$(dirname "$0")/.."

MDBOOK=0.5.4
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/docs-tools
# A network that swallows packets must not hold a run up.
FETCH_SECONDS_MAX=60
export PATH=$tools/bin:$PATH

mkdir -p "$target"
if ! command -v mdbook >/dev/null; then
    { python3 -m venv "$tools" && timeout "$FETCH_SECONDS_MAX" "$tools/bin/pip" install -q --require-hashes -r tools/site.txt; } >"$target/site.log" 2>&1 || true
fi
if ! command -v mdbook >/dev/null && [ "${1:-}" = check ]; then
    echo "skipped: the site, because mdBook is not on PATH and PyPI does not give it"
    exit 0
fi
if ! command -v mdbook >/dev/null; then
    echo "site: compiling mdBook $MDBOOK into $tools" >&2
    cargo install mdbook --version "$MDBOOK" --locked --root "$tools"
fi
python3 tests/docs/site.py stage "$target/site"
mdbook build --dest-dir "$target/book" "$target/site"
python3 tests/docs/site.py check "$target/book"
