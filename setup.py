"""Copy the conformance cases into the package, and compile the modules on the path of a message."""

import gc
import os
import re
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
CASES = ROOT / "conformance"
#: Files of cases, and of the agents by which clients of other languages are tested.
SUFFIXES = {".py", ".ini", ".toml", ".md", ".mjs", ".pl", ".rb"}

#: Packages and modules that mypyc compiles. All go into one library, in which they call each other
#: directly. Left out are modules that run once for a connection or less, those that other programs
#: derive from or replace, and tables and flags, which gain nothing.
COMPILED_PACKAGES = ("stompkit/server/domain",)
COMPILED_MODULES = {
    "stompkit/frames": (
        "_checks _decoder _encoder _escapes _frame _head _head_reader _head_template _known_heads"
        " _numbers _shape"
    ),
    "stompkit/replication/model": "values",
    "stompkit/replication/sources/mysql/_binlog": "blocks moments numbers rows values",
    "stompkit/replication/sources/postgres": "_changes _published _values pgoutput",
    "stompkit/server/stores": "lmdb lmdb_batch log record",
}
#: The environment that builds a wheel has neither Twisted nor plug-ins of mypy.
MYPY = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]

#: Targets of links and pictures in README.rst that are relative to the repository.
RELATIVE_LINK = re.compile(r"<(?![a-z]+:)([^<>\s]+)>`__")
RELATIVE_PICTURE = re.compile(r"^(\.\. image:: )(?![a-z]+:)(\S+)$", re.MULTILINE)


class BuildPy(build_py):
    """Copies ``conformance/`` to ``stompkit/conformance/cases/`` in the build directory."""

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
    """Compiles; if that is impossible, the same modules run as Python."""

    def run(self) -> None:
        """Compile all modules or none: parts of the library cannot work alone."""
        try:
            super().run()
        except Exception as error:
            if must_compile():
                raise
            self.warn(f"the broker will be slower, since nothing is compiled: {error}")
            for each in self.get_outputs():
                Path(each).unlink(missing_ok=True)
            self.extensions = []
            self._become_pure()

    def _become_pure(self) -> None:
        """Let the wheel have the tags of one without compiled code, which it is now."""
        self.distribution.ext_modules = []
        wheel: Any = self.distribution.get_command_obj("bdist_wheel", create=False)
        if wheel is not None:
            wheel.root_is_pure = True


def must_compile() -> bool:
    """Return True if a wheel that is not compiled is an error, as for a release."""
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
    """Return the extension modules; none for an editable install, whose source is edited."""
    is_built = any(command in sys.argv for command in ("bdist_wheel", "build", "build_ext"))
    if not is_built or os.environ.get("STOMPKIT_PURE", "") not in ("", "0"):
        return []
    paths = compiled_paths()
    try:
        from mypyc.build import mypycify

        # Tests of the content of a wheel need no optimised code, which takes longer to compile.
        level = os.environ.get("STOMPKIT_COMPILE_LEVEL", "3")
        extensions = mypycify(
            [*MYPY, *paths], opt_level=level, debug_level="0", group_name="stompkit"
        )
    except (ImportError, SystemExit) as error:
        if must_compile():
            raise
        print(f"warning: the broker will be slower, since mypyc can't compile it: {error}")
        return []
    # What mypyc leaves is a gigabyte in cycles. To search and free it at exit takes ten seconds.
    gc.freeze()
    if sys.platform != "win32":
        for each in extensions:
            # Warnings about generated C help nobody, and looking for them takes most of the time.
            # mypyc indents deeper with each function: -Wall makes GCC see whether that misleads.
            each.extra_compile_args = [*each.extra_compile_args, "-Wno-all"]
    return extensions


def long_description() -> str:
    """Return README.rst with absolute links, so that they also work on a package index."""
    source = source_url()
    version = re.findall(
        r'^__version__ = "(.+)"$', (ROOT / "stompkit/__init__.py").read_text("utf-8"), re.MULTILINE
    )[0]
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    text = RELATIVE_LINK.sub(rf"<{source}/blob/v{version}/\1>`__", text)
    return RELATIVE_PICTURE.sub(rf"\1{source}/raw/v{version}/\2", text)


def source_url() -> str:
    """Return the address of the repository in setup.cfg, the only place that states it."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    return settings["metadata"]["url"]


def project_urls() -> dict[str, str]:
    """Return the addresses that a package index shows; the site is that of GitHub Pages."""
    source = source_url()
    owner, name = source.split("/")[-2:]
    return {
        "Source": source,
        "Documentation": f"https://{owner}.github.io/{name}/",
        "Changes": f"{source}/blob/main/CHANGES.rst",
        "Issues": f"{source}/issues",
    }


setup(
    cmdclass={"build_py": BuildPy, "build_ext": BuildExt},
    ext_modules=compiled(),
    long_description=long_description(),
    project_urls=project_urls(),
)
