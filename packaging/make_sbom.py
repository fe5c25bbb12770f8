"""Write a software bill of materials (CycloneDX, JSON): what stompkit runs with.

``cyclonedx-py`` looks into the environment of this Python. Of what it finds those packages stay
that setup.cfg requires, without and with its extras, and what these require; tools that tests and
the documentation need are left out. An extra that is not installed is named on standard error; a
required package that is missing is a failure.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from configparser import RawConfigParser
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[1]
#: Extras for those who work on stompkit, or test with it.
TOOLS: Final = frozenset({"conformance", "dev", "docs", "testing"})


def normal(name: str) -> str:
    """A name as it is compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(text: str) -> list[Requirement]:
    """Those that lines of setup.cfg are."""
    lines = (line.strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def required() -> tuple[list[Requirement], dict[str, list[Requirement]]]:
    """What setup.cfg requires in any case, and for each extra."""
    parser = RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = {
        name: [each for each in requirements(text) if each.name != "stompkit"]
        for name, text in parser.items("options.extras_require")
        if name not in TOOLS
    }
    return requirements(parser.get("options", "install_requires")), extras


def environment() -> dict[str, Any]:
    """What is installed beside this Python, as CycloneDX has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "environment.json"
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
        done = subprocess.run(
            [*command, "--no-validate", "-o", str(path)], capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(
                f"cyclonedx-py failed; is it there? pip install cyclonedx-bom\n{done.stderr}"
            )
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


def with_needs(wanted: Iterable[Requirement]) -> set[str]:
    """The names of packages that are installed, and of all that these require in turn."""
    found: set[tuple[str, str]] = set()
    left = list(wanted)
    while left:
        one = left.pop()
        for extra in ("", *one.extras):
            key = normal(one.name), extra
            if key in found:
                continue
            try:
                needs = [Requirement(each) for each in requires(one.name) or ()]
            except PackageNotFoundError:
                continue
            found.add(key)
            left += [
                each
                for each in needs
                if each.marker is None or each.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in found}


def bill(document: dict[str, Any]) -> dict[str, Any]:
    """The bill: stompkit, and what it runs with; raises SystemExit where something is missing."""
    core, extras = required()
    refs = {normal(each["name"]): each["bom-ref"] for each in document["components"]}
    if missing := [each.name for each in core if normal(each.name) not in refs]:
        raise SystemExit(f"not installed here: {', '.join(missing)}")
    for name, packages in sorted(extras.items()):
        if missing := [each.name for each in packages if normal(each.name) not in refs]:
            print(f"[{name}] is left out: {', '.join(missing)} not there", file=sys.stderr)
    wanted = [*core, *(each for packages in extras.values() for each in packages)]
    kept = {refs[name] for name in with_needs(wanted) if name in refs}
    own = {normal(each.name) for each in wanted} & refs.keys()
    document["metadata"]["component"] = {
        "type": "application",
        "bom-ref": "stompkit",
        "name": "stompkit",
        "version": version(),
        "purl": f"pkg:pypi/stompkit@{version()}",
        "licenses": [{"license": {"id": "MIT"}}],
    }
    document["components"] = [each for each in document["components"] if each["bom-ref"] in kept]
    document["dependencies"] = [
        {"ref": "stompkit", "dependsOn": sorted(refs[name] for name in own)},
        *(
            {**each, "dependsOn": [ref for ref in each.get("dependsOn", ()) if ref in kept]}
            for each in document["dependencies"]
            if each["ref"] in kept
        ),
    ]
    return document


def version() -> str:
    """Stompkit's, without importing it."""
    text = (ROOT / "stompkit" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__\b[^=]*= "([^"]+)"', text, re.MULTILINE)
    assert found is not None  # setup.cfg takes it from there, too
    return found[1]


def main() -> None:
    """Read the command line, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, metavar="FILE", help="where to write it")
    path: Path = parser.parse_args().output
    made = bill(environment())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(f"{path}: {len(made['components'])} packages")


if __name__ == "__main__":
    main()
