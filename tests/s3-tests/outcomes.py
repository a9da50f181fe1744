"""pytest plugin of run.sh: each worker gets the server of its own, and what became of every case goes to $S3_TESTS_OUTCOMES.

Each case gets a prefix of its own for its buckets, and none of the users of the case before it: what one leaves behind fails
its own teardown, not the cases after it.

A line for each case that counts: `OUTCOME<tab>CASE<tab>WHY<tab>SECONDS`. Cases that their authors marked `fails_on_aws` do not
count, as no server that does what AWS does passes them; they are not run. Everything else counts, and only `passed` is a
pass: a skip is none.
"""

import os
import sys


# As in the configuration.
BUCKETS = "s3t-{random}-"


def case_of(nodeid):
    """`s3tests/functional/test_s3.py::test_x[a]` is the case `test_s3.py::test_x[a]`."""
    file, _, name = nodeid.partition("::")
    return f"{os.path.basename(file)}::{name}"


def why(report):
    """The line that tells most: that of the exception, without its place."""
    if isinstance(report.longrepr, tuple):
        text = str(report.longrepr[2])
    else:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash is not None else str(report.longrepr or "")
    before = "" if report.when == "call" or report.outcome == "skipped" else f"{report.when}: "
    return before + " ".join(text.split())[:300]


class Recorder:
    """Lives in the controlling process, where the reports of all workers come together."""

    def __init__(self, path):
        self.path = path
        self.worst = {}

    def pytest_runtest_logreport(self, report):
        case = case_of(report.nodeid)
        outcome, reason, seconds = self.worst.get(case, ("passed", "", 0))
        if outcome == "passed" and report.outcome != "passed":
            outcome, reason = report.outcome, why(report)
        self.worst[case] = (outcome, reason, seconds + report.duration)
        if report.when == "teardown":
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(f"{outcome}\t{case}\t{reason}\t{self.worst[case][2]:.1f}\n")


def pytest_configure(config):
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None:
        config.pluginmanager.register(Recorder(os.environ["S3_TESTS_OUTCOMES"]))
    else:
        os.environ["S3TEST_CONF"] = f"{os.environ['S3TEST_CONF']}.{worker}"


def pytest_runtest_setup(item):
    suite = sys.modules["s3tests.functional"]
    # The first case makes it itself, from the configuration.
    if suite.prefix is not None:
        suite.prefix = suite.choose_bucket_prefix(template=BUCKETS)
        # The suite removes users before their groups, so those in a group are still there.
        iam = sys.modules["s3tests.functional.iam"]
        if "iam_root" in item.fixturenames:
            iam.nuke_users(iam.get_iam_root_client(), PathPrefix=iam.get_iam_path_prefix())


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if item.get_closest_marker("fails_on_aws")]
    counting = [item for item in items if item not in set(left_out)]
    number, count = map(int, os.environ.get("S3_TESTS_SHARD", "1/1").split("/"))
    items[:] = counting[number - 1 :: count]
    config.hook.pytest_deselected(items=left_out)
