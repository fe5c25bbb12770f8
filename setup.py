"""Puts the conformance cases into the package, and compiles what every message goes through."""

import os
import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
CASES = ROOT / "conformance"
#: Of cases, and of the agents by which clients of other languages are tested.
SUFFIXES = {".py", ".ini", ".toml", ".md", ".mjs", ".pl", ".rb"}

#: What mypyc compiles: packages, and single modules of others. All go into one library, in which
#: they call each other directly. Left out is what runs once for a connection or less, what other
#: programs derive from or replace, and tables and flags, which gain nothing.
COMPILED_PACKAGES = ("stompkit/server/domain",)
COMPILED_MODULES = {
    "stompkit/frames": "_checks _decoder _encoder _escapes _frame _head _head_template _numbers",
    "stompkit/server/stores": "lmdb lmdb_batch lmdb_reading log record",
}
#: Where a wheel is built there is nothing else, neither Twisted nor plug-ins of mypy.
MYPY = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]


class BuildPy(build_py):
    """Copies ``conformance/`` to ``stompkit/conformance/cases/`` in what is built."""

    def run(self) -> None:
        """Build; an editable install reads the folder where it is."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "stompkit" / "conformance" / "cases"
        for source in sorted(CASES.rglob("*")):
            if source.suffix in SUFFIXES and "__pycache__" not in source.parts:
                destination = target / source.relative_to(CASES)
                self.mkpath(str(destination.parent))
                self.copy_file(str(source), str(destination))


class BuildExt(build_ext):
    """Compiles, or leaves all as Python where that can't be done here: it does the same then."""

    def run(self) -> None:
        """Build everything or nothing: parts of a library are worse than none."""
        try:
            super().run()
        except Exception as error:
            if must_compile():
                raise
            self.warn(f"the broker will be slower, since nothing is compiled: {error}")
            for each in self.get_outputs():
                Path(each).unlink(missing_ok=True)
            self.extensions = []


def must_compile() -> bool:
    """Whether a wheel that is not compiled would be a failure, as for a release."""
    return os.environ.get("STOMPKIT_COMPILE", "") not in ("", "0")


def compiled_paths() -> list[str]:
    """Return the paths of the modules to compile, relative to this file."""
    modules = [
        f"{folder}/{name}.py"
        for folder, names in COMPILED_MODULES.items()
        for name in names.split()
    ]
    packages = [path for package in COMPILED_PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = [str(path.relative_to(ROOT)) for path in packages if path.name != "__init__.py"]
    return sorted(modules + found)


def compiled() -> list[Any]:
    """What to compile: nothing in an editable install, whose source is what is worked on."""
    is_built = any(command in sys.argv for command in ("bdist_wheel", "build", "build_ext"))
    if not is_built or os.environ.get("STOMPKIT_PURE", "") not in ("", "0"):
        return []
    paths = compiled_paths()
    try:
        from mypyc.build import mypycify

        # Less is compiled sooner, for tests of what a wheel has in it.
        level = os.environ.get("STOMPKIT_COMPILE_LEVEL", "3")
        return mypycify([*MYPY, *paths], opt_level=level, debug_level="0", group_name="stompkit")
    except (ImportError, SystemExit) as error:
        if must_compile():
            raise
        print(f"warning: the broker will be slower, since mypyc can't compile it: {error}")
        return []


setup(cmdclass={"build_py": BuildPy, "build_ext": BuildExt}, ext_modules=compiled())
