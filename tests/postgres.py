"""Tests of the volume over PostgreSQL: python3 tests/postgres.py [TEST...]

Starts a server of the machine's PostgreSQL and runs these tests of crates/volume (default: below) with their rows in it.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "goals"))
sys.dont_write_bytecode = True
from postgres import Postgres  # noqa: E402

# Those that say most in a minute or two; mixed, posix_model and listing take longer.
TESTS = ["objects", "posix_names", "races", "versions"]


def main():
    folder = tempfile.mkdtemp(prefix="margay-postgres-")
    os.chmod(folder, 0o755)
    server = Postgres(os.path.join(folder, "pg")).start()
    told = f"host={server.folder} user=margay dbname=postgres connect_timeout=10"
    tests = [word for name in sys.argv[1:] or TESTS for word in ("--test", name)]
    command = ["cargo", "test", "--locked", "--no-fail-fast", "-p", "margay-volume", *tests]
    try:
        status = subprocess.run(command, cwd=ROOT, env=os.environ | {"MARGAY_TEST_POSTGRES": told}, check=False).returncode
    finally:
        server.stop()
        subprocess.run(["rm", "-rf", folder], check=True)
    sys.exit(status)


main()
