#!/usr/bin/env python3
"""The site: `stage DIR` lays out what mdBook reads, `check DIR` reads what it wrote.

A page may link to files outside of docs/ (a unit, alert rules). In the repository such a link leads to the file; the site would
leave it dead, so the file is copied beside the pages and the link goes there; a link to a folder becomes its text. `check` fails for each link or anchor of a page that
leads nowhere in the site, and where a page that SUMMARY.md names is missing.
"""

import html.parser
import os
import pathlib
import re
import shutil
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")
# Written by mdBook for its own use: all pages in one, the table of contents in a frame, and the page of a server for lost readers.
NOT_PAGES = {"print.html", "toc.html", "404.html"}


def stage(folder):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder / "docs")
    shutil.copy(ROOT / "book.toml", folder)
    for page in sorted(DOCS.rglob("*.md")):
        def moved(found):
            target = (page.parent / found[2]).resolve()
            if "://" in found[2] or target.is_relative_to(DOCS) or not target.is_relative_to(ROOT) or not target.exists():
                return found[0]
            if target.is_dir():
                return found[1]
            inside = folder / "docs" / target.relative_to(ROOT)
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, inside)
            here = (folder / "docs" / page.relative_to(DOCS)).parent
            return f"[{found[1]}]({os.path.relpath(inside, here)}{found[3]})"

        staged = folder / "docs" / page.relative_to(DOCS)
        staged.write_text(LINK.sub(moved, page.read_text()))


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        self.anchors |= {names[name] for name in ("id", "name") if names.get(name)}
        self.links += [names[name] for name in ("href", "src") if names.get(name)]


def wrong_links(pages, exists):
    """Each link of the pages (path: text) that leads nowhere."""
    read = {path: Page(text) for path, text in pages.items()}
    found = []
    for path, page in read.items():
        for link in page.links:
            if urllib.parse.urlsplit(link).scheme:
                continue
            target, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(target))) if target else path
            if not exists(target):
                found.append(f"{path}: {link} leads nowhere")
            elif anchor and target in read and urllib.parse.unquote(anchor) not in read[target].anchors:
                found.append(f"{path}: {link}: that page has no such heading")
    return found


def check(folder):
    text = '<a href="b.html">b</a><a href="gone.html"></a><a href="b.html#x"></a><a href="b.html#no"></a><a href="https://a.example/"></a>'
    canary = wrong_links({"a.html": text, "b.html": '<h2 id="x">x</h2>'}, {"a.html", "b.html"}.__contains__)
    if len(canary) != 2:
        sys.exit(f"this check does not find what it should: {canary}")
    pages = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.html")}
    pages = {path: text for path, text in pages.items() if path not in NOT_PAGES}
    wrong = wrong_links(pages, lambda target: (folder / target).exists())
    for link in re.findall(r"\]\(([^)]+)\.md\)", (DOCS / "SUMMARY.md").read_text()):
        if re.sub("README$", "index", link) + ".html" not in pages:
            wrong.append(f"SUMMARY.md names {link}.md, which the site lacks")
    print("\n".join(sorted(set(wrong))))
    if wrong:
        print(f"site: {len(set(wrong))} links lead nowhere")
        sys.exit(1)
    print(f"evidence: the site has {len(pages)} pages, and each link and anchor of them leads somewhere")


if __name__ == "__main__":
    {"stage": stage, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
