"""What failed against the list of cases known to fail."""

import collections
import re
import sys

KNOWN = re.compile(r"(\S+)\s+# (\S.*)")
# The order of what is worse.
RANK = {"passed": 0, "not run": 1, "failed": 2, "timeout": 3}


def read_known(path):
    """Each line is a case, ` # ` and the reason why it fails; `flaky:` begins the reason of one that does not always fail."""
    known = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        parts = KNOWN.fullmatch(line)
        if parts is None or parts[1] in known:
            sys.exit(f"{path}, line {number}: each line is a case, ` # ` and the reason why it fails, and names no case twice")
        known[parts[1]] = parts[2]
    return known


def shapes(why):
    """Reasons not to run, without what differs from case to case."""
    why = re.sub(r"\s*\((?:see|was) [^)]*\)", "", why)
    return re.sub(r"(/dev/|/mnt/)\S+|\b\d+\b", "N", why)


def compare(suite, ran, known, cases, whole):
    """Prints what differs, the reasons of what was not run, and the counting line; false where anything differs."""
    outcomes = {case: ran["margay"][case] for case in cases if case in ran["margay"]}
    other = ran.get("ext4", {})
    passed, failed, surprises = 0, 0, []
    left_out = collections.Counter()
    for case, (outcome, why, _) in sorted(outcomes.items()):
        beside = other.get(case, ("passed", "", ""))[0] if other else None
        bad = outcome in ("failed", "timeout") if beside is None else RANK[outcome] > RANK[beside]
        if bad:
            failed += 1
            if case not in known:
                than = f" (on ext4: {beside})" if beside else ""
                surprises.append(f"{outcome}{than}, and is not in the list: {case}: {why}")
            continue
        if outcome == "not run":
            left_out[shapes(why)] += 1
        else:
            passed += 1
            if case in known and not known[case].startswith("flaky: "):
                surprises.append(f"passes now, remove it from the list: {case}")
    if whole:
        surprises += [f"did not run: {case}" for case in cases if case not in outcomes]
        surprises += [f"is in the list, and not in this checkout: {case}" for case in sorted(known.keys() - set(cases))]
    for why, count in left_out.most_common():
        print(f"{suite}: {count} not run: {why}")
    for surprise in surprises:
        print(f"{suite}: {surprise}")
    total = passed + failed
    share = 100 * passed / total if total else 0
    print(f"{suite}: {passed} of {total} cases pass ({share:.1f} %), {len(surprises)} unexpected")
    print(f"evidence: {suite}: {passed} of {total} cases ({share:.1f} %), {sum(left_out.values())} more cannot be run here")
    return total > 0 and not surprises
