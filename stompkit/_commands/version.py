"""``stompkit version``."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from stompkit import __version__, is_compiled

__all__ = ["main", "parser"]

#: What a broker's behaviour can depend on; the last ones are extras.
_PACKAGES: Final = ("Twisted", "msgspec", "lmdb", "SQLAlchemy", "pyOpenSSL")


def parser() -> argparse.ArgumentParser:
    """The options, of which there are none."""
    return argparse.ArgumentParser(
        prog="stompkit version",
        description="Print the versions of stompkit and of what it runs on.",
    )


def main(arguments: list[str]) -> int:
    """Print versions, as a report of a problem should have them."""
    parser().parse_args(arguments)
    print(f"stompkit {__version__}, {'compiled' if is_compiled() else 'not compiled'}")
    print(f"Python {platform.python_version()} on {platform.system()} {platform.release()}")
    for package in _PACKAGES:
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package}: not installed")
    return 0
