#!/usr/bin/env bash
# Prints `COMMIT, YYYY-MM-DD` of the source: from git, else from what `git archive` wrote into tools/commit.txt, else nothing.
# With --seconds the commit's time in seconds since 1970, for SOURCE_DATE_EPOCH.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=${1:-}
# A copy of the source that lies in another repository must not take that one's commit.
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
    commit=$(git rev-parse --short=12 HEAD)
    day=$(TZ=UTC git show -s --format=%cd --date=format-local:%Y-%m-%d HEAD)
    seconds=$(git show -s --format=%ct HEAD)
    # What was built is not that commit when files were changed since.
    git diff --quiet HEAD -- 2>/dev/null || commit=$commit-changed
else
    read -r commit seconds <tools/commit.txt
    case $commit in
        # git archive has not been here.
        *Format*) commit='' seconds='' ;;
        *) commit=${commit:0:12} day=$(date --utc --date="@$seconds" +%Y-%m-%d) ;;
    esac
fi
if [ "$wanted" = --seconds ]; then
    echo "${seconds:-0}"
elif [ -n "$commit" ]; then
    echo "$commit, $day"
fi
