"""compare.py OUTCOMES KNOWN [some]: what failed against the list of cases known to fail; exits with 1 where they differ.

Prints `s3-tests: N of M cases pass (P %)` and a line for each case that fails unexpectedly, passes unexpectedly or is gone.
With `some`, not all cases ran, so none can be gone.
"""

import re
import sys

KNOWN = re.compile(r"(\S+)\s+# (\S.*)")


def read_outcomes(path):
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return {case: (outcome, reason) for outcome, case, reason, _ in lines}


def read_known(path):
    known = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            parts = KNOWN.fullmatch(line)
            if parts is None or parts[1] in known:
                sys.exit(f"{path}, line {number}: each line is a case, ` # ` and the reason why it fails, and names no case twice")
            known[parts[1]] = parts[2]
    return known


def main(outcomes_path, known_path, ran="all"):
    outcomes, known = read_outcomes(outcomes_path), read_known(known_path)
    if not outcomes:
        sys.exit("s3-tests: no case ran")
    passed = {case for case, (outcome, _) in outcomes.items() if outcome == "passed"}
    surprises = [f"fails, and is not in the list: {case}: {outcomes[case][1]}" for case in sorted(outcomes.keys() - passed - known.keys())]
    surprises += [f"passes now, remove it from the list: {case}" for case in sorted(passed & known.keys())]
    if ran == "all":
        surprises += [f"is in the list, and not in this checkout: {case}" for case in sorted(known.keys() - outcomes.keys())]
    for surprise in surprises:
        print(f"s3-tests: {surprise}")
    share = 100 * len(passed) / len(outcomes)
    print(f"s3-tests: {len(passed)} of {len(outcomes)} cases pass ({share:.1f} %), {len(surprises)} unexpected")
    print(f"evidence: s3-tests: {len(passed)} of {len(outcomes)} cases ({share:.1f} %), all but fails_on_aws counted, skips as failures")
    sys.exit(1 if surprises else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
