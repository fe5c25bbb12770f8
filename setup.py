"""Puts the conformance cases, a folder of their own in the checkout, into the package."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CASES = Path(__file__).parent / "conformance"
#: Of cases, and of the agents by which clients of other languages are tested.
SUFFIXES = {".py", ".ini", ".toml", ".md", ".mjs", ".pl", ".rb"}


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


setup(cmdclass={"build_py": BuildPy})
