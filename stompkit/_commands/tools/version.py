"""``stompkit version``."""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from stompkit import __version__, is_compiled
from stompkit._common.arguments import Parser

__all__ = ["main", "parser"]

#: Packages that affect a broker's behaviour; the last ones are extras.
_PACKAGES: Final = ("Twisted", "msgspec", "lmdb", "SQLAlchemy", "pyOpenSSL")


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit version",
        description="Print the versions of stompkit, Python and main dependencies.",
    )
    parser.add_argument("--json", action="store_true", help="print the versions as JSON")
    return parser


def main(arguments: list[str]) -> int:
    """Print versions for a problem report."""
    options = parser().parse_args(arguments)
    packages = {package: _version(package) for package in _PACKAGES}
    system = f"{platform.system()} {platform.release()}"
    if options.json:
        document = {
            "stompkit": __version__,
            "is_compiled": is_compiled(),
            "python": platform.python_version(),
            "system": system,
            "packages": packages,
        }
        print(json.dumps(document))
        return 0
    print(f"stompkit {__version__}, {'compiled' if is_compiled() else 'not compiled'}")
    print(f"Python {platform.python_version()} on {system}")
    for package, found in packages.items():
        print(f"{package}: not installed" if found is None else f"{package} {found}")
    return 0


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
