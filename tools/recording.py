#!/usr/bin/env python3
"""Writes docs/first-run.svg: a terminal with commands and what they really print.

Each command below is run by a shell beside a new server, in name spaces of its own (a network, /srv and /mnt), and its output is drawn
as it came. As root, with /dev/fuse: MARGAY_BIN=target/release/margay tools/recording.py
"""

import html
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/first-run.svg"
SERVER = "margay serve --data /srv/margay --bucket photos &"
COMMANDS = [
    "margay mount photos /mnt/photos --data /srv/margay",
    "mkdir /mnt/photos/2026; echo 'a file' > /mnt/photos/2026/file.txt",
    "margay client ls s3://photos/2026/ --data /srv/margay",
    "echo 'an object' | margay client put - s3://photos/2026/object.txt --data /srv/margay",
    "cat /mnt/photos/2026/*",
    "mv /mnt/photos/2026 /mnt/photos/2027    # one commit, however many are in it",
    "margay client ls s3://photos/ --data /srv/margay",
]
LINE, LEFT, TOP, CHAR = 20, 16, 30, 8.4
COLUMNS = 92


def drawn(lines):
    """Lines as (is a command, text)."""
    width, height = int(2 * LEFT + COLUMNS * CHAR), TOP + LINE * len(lines) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">',
        "<title>A terminal: a bucket is mounted, a file is seen as an object, an object as a file, and a directory is renamed</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1d2330"/>',
    ]
    for index, (is_command, text) in enumerate(lines):
        at = f'x="{LEFT}" y="{TOP + LINE * index}" xml:space="preserve"'
        if is_command:
            out.append(f'<text {at} fill="#f2f4f8"><tspan fill="#7fc98f"># </tspan>{html.escape(text)}</text>')
        else:
            out.append(f'<text {at} fill="#b8c0d0">{html.escape(text)}</text>')
    return "\n".join([*out, "</svg>", ""])


def inner():
    """In the name spaces: runs the commands and draws them."""
    for words in (["ip", "link", "set", "lo", "up"], ["mount", "-t", "tmpfs", "tmpfs", "/srv"], ["mount", "-t", "tmpfs", "tmpfs", "/mnt"]):
        subprocess.run(words, check=True)
    lines = [(True, SERVER)]
    with tempfile.TemporaryDirectory() as tools:
        os.symlink(os.path.abspath(os.environ["MARGAY_BIN"]), f"{tools}/margay")
        environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": tools, "LANG": "C.UTF-8", "TZ": "UTC"}
        server = subprocess.Popen(["bash", "-c", SERVER.rstrip("& ").replace("margay", "exec margay", 1)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            subprocess.run(["bash", "-c", "until curl -sf http://127.0.0.1:9000/-/health >/dev/null; do sleep 0.1; done"], check=True)
            for command in COMMANDS:
                done = subprocess.run(["bash", "-c", command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                if done.returncode:
                    sys.exit(f"{command}: {done.stdout}")
                lines += [(True, command), *((False, line) for line in done.stdout.splitlines())]
        finally:
            server.terminate()
            server.wait()
    longest = max(len(text) for _, text in lines)
    if longest + 2 > COLUMNS:
        sys.exit(f"a line of {longest} characters does not fit")
    PICTURE.write_text(drawn(lines))
    print("\n".join(("# " if is_command else "") + text for is_command, text in lines))


if __name__ == "__main__":
    if sys.argv[1:] == ["inner"]:
        inner()
    else:
        os.environ.setdefault("MARGAY_BIN", str(ROOT / "target/release/margay"))
        words = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private"]
        sys.exit(subprocess.run([*words, sys.executable, __file__, "inner"]).returncode)
