"""What became of each case: a line for each run of one, `OUTCOME<tab>CASE<tab>WHY<tab>SECONDS<tab>BUILD`, the last one counts.

Outcomes: passed, failed, timeout, not run. The file is only appended to, so that a run which was stopped can go on.
"""


class Results:
    def __init__(self, path, build):
        self.path, self.build = path, build

    def latest(self):
        """CASE: (OUTCOME, WHY, BUILD)"""
        found = {}
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                outcome, case, why, _, build = line.split("\t")
                found[case] = (outcome, why, build)
        return found

    def settled(self, case):
        """Whether this build has had the case, and it did not fail."""
        if not hasattr(self, "known"):
            self.known = self.latest()
        outcome, _, build = self.known.get(case, ("", "", ""))
        return build == self.build and outcome in ("passed", "not run")

    def add(self, case, outcome, why, seconds):
        why = " ".join(why.split())[:300]
        # One write, so that lines of several workers do not mix.
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{outcome}\t{case}\t{why}\t{seconds:.1f}\t{self.build}\n")
