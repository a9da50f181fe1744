#!/usr/bin/env bash
# Runs the suites named as arguments, or all of them, and ends with what was shown.
#
# A suite may say what it showed by lines `evidence: TEXT` on stdout or in the file $MARGAY_EVIDENCE, and that it
# left something out by `skipped: WHAT, because WHY`. Counts come from cargo's and the client suite's own lines:
# `test result: ok. N passed; M failed`, `client NAME: N checks passed`, `client NAME: FAILED, M of N checks`,
# `fuzz NAME: ok, N runs`, `fuzz NAME: FAILED`, `s3-tests: N of M cases pass (P %), U unexpected`, which xfstests, ltp,
# pjdfstest, pjdfstest-far, minio-* and mint write too.
set -uo pipefail
cd "$(dirname "$0")/.."

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# The same cases each time: a test says the same of the same code, here and on the next machine. To look at others,
# name another seed.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export MARGAY_EVIDENCE=$logs/evidence
: >"$MARGAY_EVIDENCE"
# Tests that mount fail where they cannot, unless they are left out by name.
if [ -z "${MARGAY_NO_FUSE:-}" ] && { [ ! -c /dev/fuse ] || [ "$(id -u)" != 0 ]; }; then
    export MARGAY_NO_FUSE=1
    echo "skipped: all tests that mount, because this machine has no /dev/fuse or this is not root (MARGAY_NO_FUSE=1)" >>"$MARGAY_EVIDENCE"
fi
binary=${MARGAY_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/margay}

passed=0 failed=0 suites_passed=0 suites_failed=0
rows=()
failed_suites=()

# What passed and what failed, of all counting lines of a log: two numbers.
counts() {
    awk '
        /^test result: /                       { good += $4; bad += $6 }
        /^client [a-z0-9-]+: [0-9]+ checks /   { good += $3 }
        /^client [a-z0-9-]+: FAILED, /         { good += $6 - $4; bad += ($4 > 0 ? $4 : 1) }
        /^(s3-tests|xfstests|ltp|pjdfstest|pjdfstest-far|minio-[a-z]+|mint): .* cases pass / { good += $2; bad += $9 }
        /^fuzz [a-z0-9_]+: ok, /                  { good += 1 }
        /^fuzz [a-z0-9_]+: FAILED/                { bad += 1 }
        END                                    { print good + 0, bad + 0 }' "$1"
}

free_at() { df -h --output=avail "$1" | tail -n1 | tr -d ' '; }

suite() {
    local name=$1 log=$logs/$1 begun=$SECONDS status good bad
    shift
    # A disk that fills up shows as failures of other names.
    printf '\n== %s: %s (%s free here, %s in %s)\n' "$name" "$*" "$(free_at .)" "$(free_at "${TMPDIR:-/tmp}")" "${TMPDIR:-/tmp}"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    read -r good bad < <(counts "$log")
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
        failed_suites+=("$name")
    fi
    grep -hE '^(evidence|skipped|clients): ' "$log" >>"$MARGAY_EVIDENCE"
    sed -nE 's/^(client [a-z0-9-]+): skipped: /skipped: \1, because /p' "$log" >>"$MARGAY_EVIDENCE"
}

# The checkout of a suite of others, named by the variable with its name; nothing for suites of our own.
checkout_of() {
    case $1 in
        s3-tests) echo "${S3_TESTS:-}" ;;
        xfstests) echo "${XFSTESTS:-}" ;;
        ltp) echo "${LTP:-}" ;;
        pjdfstest | pjdfstest-far) echo "${PJDFSTEST:-}" ;;
        minio-go) echo "${MINIO_GO:-}" ;;
        minio-py) echo "${MINIO_PY:-}" ;;
        minio-js) echo "${MINIO_JS:-}" ;;
        minio-java) echo "${MINIO_JAVA:-}" ;;
        mint) echo "${MINT:-}" ;;
    esac
}

run() {
    case $1 in
        format) suite format cargo fmt --all --check ;;
        lint) suite lint cargo clippy --workspace --all-targets --locked -- -D warnings ;;
        test)
            if [ -n "${builds_early:-}" ]; then
                nice -n 19 cargo build --release --locked --bin margay >/dev/null 2>&1 &
            fi
            suite test cargo test --workspace --locked --no-fail-fast
            ;;
        # Of the mutants that are not run each time another part with each commit.
        mutants) suite mutants tools/mutants.py check --part "$(($(git rev-list --count HEAD) % 40))/40" ;;
        fuzz) suite fuzz tools/fuzz.sh "${FUZZ:-20000x}" ;;
        build) suite build cargo build --release --locked --bin margay ;;
        clients)
            if [ -x tests/clients/run.sh ]; then
                MARGAY_BIN=$binary suite clients tests/clients/run.sh
            else
                echo "skipped: clients, because tests/clients/run.sh is not there" >>"$MARGAY_EVIDENCE"
            fi
            ;;
        s3-tests)
            if [ -n "${S3_TESTS:-}" ]; then
                MARGAY_BIN=$binary suite s3-tests tests/s3-tests/run.sh
            else
                echo "skipped: s3-tests, because S3_TESTS names no checkout of github.com/ceph/s3-tests" >>"$MARGAY_EVIDENCE"
            fi
            ;;
        xfstests | ltp | pjdfstest | pjdfstest-far)
            if [ -n "$(checkout_of "$1")" ]; then
                MARGAY_BIN=$binary suite "$1" tests/posix-suites/run.py "$1"
            else
                local variable=${1^^}
                echo "skipped: $1, because ${variable%-FAR} names no checkout of it" >>"$MARGAY_EVIDENCE"
            fi
            ;;
        minio-go | minio-py | minio-js | minio-java | mint)
            if [ -n "$(checkout_of "$1")" ]; then
                MARGAY_BIN=$binary suite "$1" tests/sdk-suites/run.py "$1"
            else
                local variable=${1^^}
                echo "skipped: $1, because ${variable/-/_} names no checkout of github.com/minio/$1" >>"$MARGAY_EVIDENCE"
            fi
            ;;
        supply) suite supply tools/supply.sh ;;
        docs)
            MARGAY_BIN=$binary suite docs tests/docs/run.py
            suite site tools/site.sh check
            ;;
        console) MARGAY_BIN=$binary suite console tests/console/run.sh ;;
        kill) suite kill tests/kill/run.sh ;;
        postgres) suite postgres python3 tests/postgres.py ;;
        cluster-ha)
            # What is believed of the next one rests on it.
            suite registers python3 tests/goals/registers_test.py
            MARGAY_BIN=$binary suite cluster-ha timeout --signal=INT --kill-after=300 3600 python3 tests/cluster_ha.py
            local newest
            newest=$(realpath -m "${CARGO_TARGET_DIR:-target}")/patroni/bin/patroni
            if [ -x "$newest" ]; then
                PATRONI=$newest MARGAY_BIN=$binary suite cluster-ha-newest timeout --signal=INT --kill-after=300 3600 python3 tests/cluster_ha.py
            else
                echo "skipped: cluster-ha with Patroni 4, because tools/prepare.sh cluster-ha did not get it from PyPI" >>"$MARGAY_EVIDENCE"
            fi
            ;;
        soak) suite soak tools/soak.sh "${SOAK_SEEDS:-40}" ;;
        dist) MARGAY_BIN=$binary suite dist tests/dist.py ;;
        full) suite full tests/full/run.sh 2 1024 ;;
        mount) suite mount tests/mount/run.sh ;;
        watching) MARGAY_BIN=$binary suite watching tests/watching.py ;;
        interop) MARGAY_BIN=$binary suite interop tests/interop/run.py ;;
        *) echo "unknown suite $1; there are: format lint test supply docs console mutants fuzz build clients s3-tests minio-go minio-py minio-js minio-java mint xfstests ltp pjdfstest pjdfstest-far kill soak full mount interop watching dist postgres cluster-ha" >&2; exit 2 ;;
    esac
}

tools/prepare.sh tests || exit 1
if [ $# = 0 ]; then
    # The program that later suites start is built while tests wait for disks and clocks: it gets what they leave.
    builds_early=1
    set -- format lint supply test postgres mutants fuzz build clients docs console s3-tests minio-go minio-py minio-js minio-java mint xfstests ltp pjdfstest pjdfstest-far kill soak full mount interop watching dist cluster-ha
fi
for name in "$@"; do
    if [[ "$name" =~ ^(clients|docs|console|kill|full|mount|interop|watching|dist|cluster-ha)$ || -n "$(checkout_of "$name")" ]] && [ ! -x "$binary" ]; then run build; fi
    run "$name"
done

printf '\n== summary\n'
printf '%s\n' "${rows[@]}"
sort -u "$MARGAY_EVIDENCE"
# At the end, where a log that is cut still has them: what failed, and its last words.
for name in "${failed_suites[@]}"; do
    printf '\n== the end of %s\n' "$name"
    grep -E 'FAILED|FAIL:|panicked|^error' "$logs/$name" | head -n 15
    tail -n 15 "$logs/$name"
done
printf '%s\n' "${rows[@]}" | grep '^FAILED' || true
echo "suites: $suites_passed of $((suites_passed + suites_failed))"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$suites_failed" = 0 ]
