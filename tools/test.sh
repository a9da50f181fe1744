#!/usr/bin/env bash
# Runs the suites named as arguments, or all of them, and ends with what was shown.
#
# A suite may say what it showed by lines `evidence: TEXT` on stdout or in the file $MARGAY_EVIDENCE, and that it
# left something out by `skipped: WHAT, because WHY`. Counts come from cargo's and the client suite's own lines.
set -uo pipefail
cd "$(dirname "$0")/.."

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export MARGAY_EVIDENCE=$logs/evidence
: >"$MARGAY_EVIDENCE"
target=${CARGO_TARGET_DIR:-target}

passed=0 failed=0 suites_passed=0 suites_failed=0
rows=()

# Adds up lines like `test result: ok. 12 passed; 0 failed` or `12 passed, 0 failed`.
count() { grep -Eo "[0-9]+ $2" "$1" | awk '{ sum += $1 } END { print sum + 0 }'; }

suite() {
    local name=$1 log=$logs/$1 begun=$SECONDS status good bad
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    good=$(grep -E '^(test result: |[0-9]+ passed, [0-9]+ failed)' "$log" >"$log.counts"; count "$log.counts" passed)
    bad=$(count "$log.counts" failed)
    if [ "$good" = 0 ] && [ "$bad" = 0 ]; then
        if [ "$status" = 0 ]; then good=1; else bad=1; fi
    elif [ "$status" != 0 ] && [ "$bad" = 0 ]; then
        bad=1
    fi
    passed=$((passed + good)) failed=$((failed + bad))
    if [ "$status" = 0 ] && [ "$bad" = 0 ]; then
        suites_passed=$((suites_passed + 1))
        rows+=("ok      $name: $good passed in $((SECONDS - begun)) s")
    else
        suites_failed=$((suites_failed + 1))
        rows+=("FAILED  $name: $good passed, $bad failed in $((SECONDS - begun)) s")
    fi
    grep -hE '^(evidence|skipped): ' "$log" >>"$MARGAY_EVIDENCE"
}

run() {
    case $1 in
        format) suite format cargo fmt --all --check ;;
        lint) suite lint cargo clippy --workspace --all-targets --locked -- -D warnings ;;
        test) suite test cargo test --workspace --locked --no-fail-fast ;;
        build) suite build cargo build --release --locked --bin margay ;;
        clients)
            if [ -x tests/clients/run.sh ]; then
                MARGAY=${MARGAY:-$target/release/margay} suite clients tests/clients/run.sh
            else
                echo "skipped: clients, because tests/clients/run.sh is not there" >>"$MARGAY_EVIDENCE"
            fi
            ;;
        *) echo "unknown suite $1; there are: format lint test build clients" >&2; exit 2 ;;
    esac
}

tools/prepare.sh tests || exit 1
if [ $# = 0 ]; then set -- format lint test build clients; fi
for name in "$@"; do
    if [ "$name" = clients ] && [ ! -x "${MARGAY:-$target/release/margay}" ]; then run build; fi
    run "$name"
done

printf '\n== summary\n'
printf '%s\n' "${rows[@]}"
sort -u "$MARGAY_EVIDENCE"
echo "suites: $suites_passed of $((suites_passed + suites_failed))"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$suites_failed" = 0 ]
