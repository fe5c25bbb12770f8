"""Check that a tag, the version, the change log and the files of a release agree.

``python packaging/check_release.py v1.0.0 dist`` prints each contradiction, and exits with 1
if there is one. It needs only Python, because the release workflow runs it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
#: Architectures with a compiled wheel.
_ARCHITECTURES: Final = ("x86_64", "aarch64")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the tag and the folder that the arguments name; return the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if len(words) != 2:
        print("usage: python packaging/check_release.py TAG FOLDER", file=sys.stderr)
        return 2
    found = list(problems(words[0], {path.name for path in Path(words[1]).glob("*")}))
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


def problems(tag: str, names: set[str]) -> Iterator[str]:
    """Yield what contradicts the tag: the version, the change log, and *names* of files."""
    version = stated_version()
    if tag != f"v{version}":
        yield f"the tag is {tag}, but stompkit/__init__.py has version {version}"
    changes = (ROOT / "CHANGES.rst").read_text(encoding="utf-8")
    if not re.search(
        rf"^stompkit {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.MULTILINE
    ):
        yield f"CHANGES.rst has no section for {version}: run towncrier build"
    wanted = [f"stompkit-{version}.tar.gz", f"stompkit-{version}-py3-none-any.whl"]
    yield from (f"{name} is missing" for name in wanted if name not in names)
    rest = names.difference(wanted)
    for python in pythons():
        for architecture in _ARCHITECTURES:
            form = rf"stompkit-{re.escape(version)}-{python}-{python}-manylinux\w*_{architecture}"
            wheels = {name for name in rest if re.fullmatch(rf"{form}[\w.]*\.whl", name)}
            if not wheels:
                yield f"a wheel for {python} on {architecture} is missing"
            rest -= wheels
    yield from (f"{name} does not belong to the release" for name in sorted(rest))


def stated_version() -> str:
    """Return the version in the package, without importing it."""
    text = (ROOT / "stompkit" / "__init__.py").read_text(encoding="utf-8")
    [version] = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(version)


def pythons() -> list[str]:
    """Return the tags of the Python versions with a compiled wheel, such as ``cp311``."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [name.removesuffix("-*") for name in settings["tool"]["cibuildwheel"]["build"]]


if __name__ == "__main__":
    sys.exit(main())
