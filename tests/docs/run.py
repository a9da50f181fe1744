#!/usr/bin/env python3
"""Runs every command of the pages that teach, as they stand there.

A block of `sh` is run by bash, one shell for a page, which ends at the first command that fails. What stands before a block in a
comment of the page says how:

  <!-- test: server -->            it runs in the background, and the next one begins when its health page answers
  <!-- test: needs aws jq -->      left out by name where a program (or `fuse`, `boto3`) is missing
  <!-- test: skip WHY -->          left out by name
  <!-- file: PATH -->              the block, of whatever language, is the content of that file
  <!-- test: hidden (or server, or needs ...), lines of commands -->   commands that the page does not show

A block of another language without such a comment is only looked at. docs/from-minio.md moves from a real MinIO where `minio` and
`mc` are on PATH, else from a second margay. Each page has a network, a table of mounts and a process
table of its own, and /srv, /mnt, /etc, /var/lib and the home directory are copies: its addresses and paths are those of the page.

Usage: tests/docs/run.py [PAGE...]. Needs root; MARGAY_BIN names the program. `page NAME` is for the inner process.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = ["README.md", "docs/first-steps.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs/how-to").glob("*.md")),
         "docs/from-minio.md", "docs/from-leofs.md"]
# A page that waits for something that does not come.
PAGE_SECONDS_MAX = 900
SHOWN_BYTES = 3000
COMMAND_CHARS_SHOWN = 70


class Wrong(Exception):
    pass


def blocks(text):
    """(comment, language, content) of each fenced block, and of each hidden one with the language `hidden`."""
    pattern = re.compile(r"<!-- (?P<hidden>test: (?:(?!-->)[^\n])*)\n(?P<body>.*?)\n-->|(?:<!-- (?P<comment>(?:test|file): [^\n]*?) -->\n)?"
                         r"^```(?P<language>[a-z]*)\n(?P<content>.*?)^```$", re.S | re.M)
    for found in pattern.finditer(text):
        if found["hidden"]:
            yield found["hidden"], "hidden", found["body"] + "\n"
        else:
            yield found["comment"] or "", found["language"], found["content"]


def is_there(name):
    if name == "fuse":
        return os.path.exists("/dev/fuse") and os.environ.get("MARGAY_NO_FUSE") != "1"
    if name == "boto3":
        return subprocess.run(["python3", "-c", "import boto3"], capture_output=True).returncode == 0
    return shutil.which(name) is not None


def script(page, text):
    """The page as a script, what it leaves out, and how many blocks it runs."""
    lines, skipped, count = ["set -eo pipefail"], [], 0
    for comment, language, content in blocks(text):
        kind, _, words = comment.partition(": ")
        order, _, rest = words.partition(" ")
        if kind == "file":
            path = words.strip()
            lines += [f"mkdir -p \"$(dirname {path})\"", f"cat >{path} <<'END-OF-FILE'", content.rstrip("\n"), "END-OF-FILE"]
            continue
        if language not in ("sh", "hidden"):
            continue
        missing = [name for name in rest.split(",")[0].split() if not is_there(name)] if order == "needs" else []
        first = content.strip().splitlines()[0][:COMMAND_CHARS_SHOWN]
        if order == "skip" or missing:
            skipped.append(f"{page}, `{first}`, because {rest if order == 'skip' else 'there is no ' + ' and no '.join(missing)}")
            continue
        count += 1
        lines.append(f"echo {shell_quoted('== ' + first)}")
        if order == "server":
            server = " ".join(line.rstrip("\\").strip() for line in content.strip().splitlines())
            lines += [f"{server} >/srv/server.log 2>&1 &", "margay_server=$!",
                      "until curl -sf http://127.0.0.1:9000/-/health >/dev/null; do",
                      "    kill -0 $margay_server || { cat /srv/server.log; exit 1; }; sleep 0.1", "done"]
        else:
            lines.append(content.rstrip("\n"))
    lines += ["cd /", "kill $margay_server 2>/dev/null || true", "wait $margay_server", "echo '== the server ended with 0'"]
    return "\n".join(lines) + "\n", skipped, count


def shell_quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def inner(page, folder):
    """In the own name spaces: copies of what a page may change, then the page."""
    folder = pathlib.Path(folder)
    for command in [["ip", "link", "set", "lo", "up"], ["mount", "-t", "tmpfs", "tmpfs", "/srv"]]:
        subprocess.run(command, check=True)
    for name in ["etc", "sbin", "var/lib"]:
        upper, work = folder / f"{name.replace('/', '-')}-upper", folder / f"{name.replace('/', '-')}-work"
        upper.mkdir(), work.mkdir()
        place = os.path.realpath(f"/{name}")
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={place},upperdir={upper},workdir={work}", place], check=True)
    # The service's directory may hold something on this machine.
    os.makedirs("/var/lib/margay", exist_ok=True)
    for place in ["/mnt", "/var/lib/margay"]:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    home, tools = folder / "home", folder / "bin"
    home.mkdir(), tools.mkdir()
    os.symlink(os.path.abspath(os.environ["MARGAY_BIN"]), tools / "margay")
    # A page names it; only mount(8) in the page's own /sbin must find it, too.
    with open("/etc/hosts", "a") as hosts:
        hosts.write("127.0.0.1 old.example\n")
    keep = ("PATH", "LANG", "PYENV_ROOT", "PYENV_VERSION", "VIRTUAL_ENV", "MARGAY_NO_FUSE")
    environment = {name: value for name, value in os.environ.items() if name in keep}
    environment |= {"HOME": str(home), "PATH": f"{tools}:{environment['PATH']}", "no_proxy": "*"}
    os.environ.clear()
    os.environ.update(environment)
    commands, skipped, count = script(page, (ROOT / page).read_text())
    for line in skipped:
        print(f"skipped: {line}", flush=True)
    ended = subprocess.run(["bash", "-c", commands], cwd=home, stdin=subprocess.DEVNULL, env=environment)
    if ended.returncode:
        log = pathlib.Path("/srv/server.log")
        tail = log.read_text()[-SHOWN_BYTES:] if log.exists() else ""
        raise Wrong(f"{page}: the command after the last `==` ended with {ended.returncode}; the server said:\n{tail}")
    print(f"blocks: {count}", flush=True)


def outer(pages):
    if os.geteuid() != 0:
        print("skipped: the commands of the documents, because only root makes name spaces")
        return
    missing = [name for name in ("curl", "ip", "unshare", "bash") if not shutil.which(name)]
    if missing:
        print(f"skipped: the commands of the documents, because there is no {' and no '.join(missing)}")
        return
    # What the suite of clients has installed.
    target = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    os.environ["PATH"] = ":".join([f"{target}/clients-mc/bin", f"{target}/clients-venv/bin", os.environ["PATH"]])
    os.environ["MARGAY_BIN"] = os.path.abspath(os.environ.get("MARGAY_BIN", ROOT / "target/release/margay"))
    bad = good = 0
    for page in pages:
        text = (ROOT / page).read_text()
        if not any(language == "sh" for _, language, _ in blocks(text)):
            raise Wrong(f"{page} has no commands: this shows nothing")
        with tempfile.TemporaryDirectory(prefix="margay-docs-") as folder:
            command = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private",
                       sys.executable, __file__, "inner", page, folder]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=PAGE_SECONDS_MAX)
        for line in ended.stdout.splitlines():
            if line.startswith("skipped: "):
                print(line)
        if ended.returncode:
            bad += 1
            print(f"FAILED {page}\n{ended.stdout[-SHOWN_BYTES:]}\n{ended.stderr[-SHOWN_BYTES:]}")
        else:
            good += 1
            count = [line for line in ended.stdout.splitlines() if line.startswith("blocks: ")][-1]
            print(f"ok {page}, {count.removeprefix('blocks: ')} blocks of commands", flush=True)
    if good:
        print(f"evidence: every command of {good} pages runs as it stands there")
    print(f"test result: {'FAILED' if bad else 'ok'}. {good} passed; {bad} failed")
    if bad:
        sys.exit(1)


def main(arguments):
    if arguments[:1] == ["inner"]:
        inner(arguments[1], arguments[2])
    else:
        outer(arguments or PAGES)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Wrong as wrong:
        sys.exit(str(wrong))
