#!/usr/bin/env bash
# Makes the run in a report of `margay bench all` the committed one: tools/figures.sh REPORT
# Its tables and pictures go to docs/benchmarks, and from there into docs/benchmarks.md and README.md. `make bench` calls this.
set -euo pipefail
report=${1:?the directory that margay bench all --report wrote}
cd "$(dirname "$0")/.."
test -s "$report/run.json" || { echo "no $report/run.json: the run did not end" >&2; exit 1; }
kept=docs/benchmarks
mkdir -p "$kept"
find "$kept" -mindepth 1 -maxdepth 1 -type d -exec rm -r {} +
cp "$report/run.json" "$kept/"
for pictures in "$report"/*/; do
    # What each rival did second by second is below; the comparison is enough here.
    found=("$pictures"*.svg)
    if [ -e "${found[0]}" ]; then
        folder=$kept/$(basename "$pictures")
        mkdir -p "$folder"
        cp "${found[@]}" "$folder/"
    fi
done
MARGAY_WRITE_DOCS=1 cargo test --quiet --workspace --locked --test figures
