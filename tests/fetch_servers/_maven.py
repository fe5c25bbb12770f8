"""A server whose libraries come from a Maven repository."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from stompkit.testing.launching.fetched import Fetched
from tests.fetch_servers._commands import FetchError, Say, run

__all__ = ["JarServer", "MavenServer", "TarServer"]

_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
# The versions of most libraries come from the server's own list of versions.
_PROJECT: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>stompkit</groupId>
  <artifactId>server</artifactId>
  <version>1</version>
  <dependencyManagement>
    <dependencies>
      <dependency>
        <groupId>{group}</groupId>
        <artifactId>{parent}</artifactId>
        <version>{version}</version>
        <type>pom</type>
        <scope>import</scope>
      </dependency>
    </dependencies>
  </dependencyManagement>
  <dependencies>{libraries}
  </dependencies>
</project>
"""
_LIBRARY: Final = """
    <dependency>
      <groupId>{0}</groupId>
      <artifactId>{1}</artifactId>{2}
      <scope>runtime</scope>
    </dependency>"""


@dataclass(frozen=True)
class MavenServer(ABC):
    """A server of one version, by the user's own Maven and its settings."""

    name: str
    """Name of the server here, as in ``activemq-6``."""
    server: str
    """The kind of server."""
    version: str
    """The version to download."""

    @property
    def about(self) -> str:
        """Description of its origin."""
        return f"{self.version}, by Maven"

    def obstacle(self) -> str | None:
        """Return the reason why it cannot be downloaded, with the remedy; ``None`` if it can."""
        if shutil.which("mvn") is None:
            return "it takes Maven, the program mvn (on Debian: apt-get install maven)"
        return None

    def is_current(self, there: Fetched) -> bool:
        """Return True if the existing version is the wanted one."""
        return there.version == self.version

    def fetch(self, cache: Path, say: Say, *, newest: bool = False) -> Fetched:
        """Download the libraries into a separate folder; raise FetchError.

        The version is fixed, so ``newest`` has no effect.
        """
        folder = cache / f"{self.server}-{self.version}"
        if not folder.is_dir():
            unfinished = folder.with_name(f"{folder.name}.part")
            if unfinished.exists():
                shutil.rmtree(unfinished)
            unfinished.mkdir(parents=True)
            log = cache / "log" / f"{self.name}.log"
            log.unlink(missing_ok=True)
            say(f"  has Maven fetch {self.version} into {folder}")
            with tempfile.TemporaryDirectory(dir=cache) as work:
                self._fill(unfinished, Path(work), log, say)
            unfinished.rename(folder)
        return Fetched(self.name, self.server, self.version, folder)

    @abstractmethod
    def _fill(self, folder: Path, work: Path, log: Path, say: Say) -> None:
        """Put the server's files into the folder; ``work`` is for temporary files."""

    @staticmethod
    def _maven(work: Path, log: Path, say: Say, goal: str, **properties: str) -> None:
        settings = [f"-D{name}={value}" for name, value in properties.items()]
        command = ["mvn", "--batch-mode", "-Dstyle.color=never", f"{_PLUGIN}:{goal}", *settings]
        run(command, log, say, directory=work)


@dataclass(frozen=True)
class TarServer(MavenServer):
    """A server that is published as one archive."""

    artifact: str
    """The archive's group and name."""

    def _fill(self, folder: Path, work: Path, log: Path, say: Say) -> None:
        artifact = f"{self.artifact}:{self.version}:tar.gz:bin"
        self._maven(work, log, say, "copy", artifact=artifact, outputDirectory=str(work))
        archives = list(work.glob("*.tar.gz"))
        if len(archives) != 1:
            raise FetchError(f"Maven has fetched {len(archives)} archives, and not one (see {log})")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(work, filter="data")
        # All files are in one directory, which has the version in its name.
        [top] = [path for path in work.iterdir() if path.is_dir()]
        for path in top.iterdir():
            path.rename(folder / path.name)


@dataclass(frozen=True)
class JarServer(MavenServer):
    """A server that is published as libraries, each with its dependencies."""

    group: str
    """The group of the server's own libraries."""
    parent: str
    """The name of the artifact that lists the versions of all libraries."""
    libraries: tuple[str, ...]
    """The libraries: of the server's group, else as ``GROUP:NAME`` or ``GROUP:NAME:VERSION``."""

    def _fill(self, folder: Path, work: Path, log: Path, say: Say) -> None:
        (work / "pom.xml").write_text(self.project(), encoding="utf-8")
        self._maven(work, log, say, "copy-dependencies", outputDirectory=str(folder))
        if not any(folder.glob("*.jar")):
            raise FetchError(f"Maven has fetched no library (see {log})")

    def project(self) -> str:
        """Return the project whose dependencies Maven downloads."""
        return _PROJECT.format(
            group=escape(self.group),
            parent=escape(self.parent),
            version=escape(self.version),
            libraries="".join(map(self._dependency, self.libraries)),
        )

    def _dependency(self, library: str) -> str:
        full = library if ":" in library else f"{self.group}:{library}"
        group, name, version = [*full.split(":"), ""][:3]
        said = f"\n      <version>{escape(version)}</version>" if version else ""
        return _LIBRARY.format(escape(group), escape(name), said)
