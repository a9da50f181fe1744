#!/usr/bin/env python3
"""What is inside the shipped program, from Cargo.lock by `cargo metadata`. Standard library only.

    sbom.py sbom VERSION ARCH...   a list of all packages in it, as CycloneDX 1.5 JSON
    sbom.py notices                name, version, licence and licence text of each, as their licences ask for

Only what the program is linked from counts: no tools of its tests, and no packages for other systems.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENCE_FILES = re.compile(r"^(LICEN[SC]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.I)
# Rust's musl targets bring it; cargo does not know of it.
MUSL = {"name": "musl", "version": "1.2.5", "license": "MIT"}


def packages(arches):
    """The program's own package, and those that it is linked from on any of these machines, with what each needs."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    for arch in arches:
        command += ["--filter-platform", f"{arch}-unknown-linux-musl"]
    found = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    by_id = {package["id"]: package for package in found["packages"]}
    needs = {}
    for node in found["resolve"]["nodes"]:
        kinds = {dep["pkg"]: {kind["kind"] for kind in dep["dep_kinds"]} for dep in node["deps"]}
        needs[node["id"]] = sorted(pkg for pkg, kind in kinds.items() if None in kind)
    own = next(package["id"] for package in found["packages"] if package["name"] == "margay")
    inside, waiting = set(), [own]
    while waiting:
        package = waiting.pop()
        if package not in inside:
            inside.add(package)
            waiting += needs[package]
    return by_id[own], [by_id[package] for package in sorted(inside - {own})], {package: needs[package] for package in inside}


def checksums():
    """The checksum of each package of the registry, by name and version."""
    lock = (ROOT / "Cargo.lock").read_text()
    pattern = r'name = "(.*)"\nversion = "(.*)"\nsource = ".*"\nchecksum = "(.*)"'
    return {(name, version): checksum for name, version, checksum in re.findall(pattern, lock)}


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, known):
    row = {"type": "library", "bom-ref": reference(package), "name": package["name"], "version": package["version"]}
    row["purl"] = reference(package)
    if package["license"]:
        row["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = known.get((package["name"], package["version"]))
    if checksum:
        row["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return row


def sbom(version, arches):
    own, others, needs = packages(arches)
    known, names = checksums(), {package["id"]: reference(package) for package in [own, *others]}
    shipped = f"pkg:generic/margay@{version}"
    names[own["id"]] = shipped
    musl = {"type": "library", "bom-ref": "pkg:generic/musl@1.2.5", "name": MUSL["name"], "version": MUSL["version"]}
    musl["licenses"] = [{"expression": MUSL["license"]}]
    components = sorted([component(package, known) for package in others] + [musl], key=lambda row: row["bom-ref"])
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    content = json.dumps([version, components]).encode()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # The same source gives the same number.
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=hashlib.sha256(content).digest()[:16], version=4)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": shipped,
                "name": "margay",
                "version": version,
                "purl": shipped,
                "licenses": [{"expression": own["license"]}],
            },
        },
        "components": components,
        "dependencies": [
            {"ref": names[package], "dependsOn": sorted(names[need] for need in needs[package])} for package in sorted(needs)
        ],
    }


def notices():
    """One part for each text: the packages that it is the licence of, and the text."""
    _, others, _ = packages(["x86_64", "aarch64"])
    of_text = {}
    for package in others:
        if not package["source"]:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        files = sorted(path for path in folder.iterdir() if path.is_file() and LICENCE_FILES.match(path.name))
        said = f"{package['name']} {package['version']} ({package['license']})"
        texts = [path.read_text(errors="replace").strip() for path in files] or ["(the package has no text of its licence)"]
        for text in texts:
            of_text.setdefault(text, []).append(said)
    yield "The program margay contains these packages, under these licences, and the C library musl (MIT)."
    for text, said in sorted(of_text.items(), key=lambda pair: pair[1]):
        yield "=" * 78
        yield from sorted(said)
        yield "-" * 78
        yield text


def main(words):
    match words:
        case ["sbom", version, *arches] if arches:
            print(json.dumps(sbom(version, arches), indent=1))
        case ["notices"]:
            print("\n".join(notices()))
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
