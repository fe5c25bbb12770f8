"""A server of a newer Debian release than the machine's: in a folder, with its dependencies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stompkit.testing.launching.fetched import Fetched
from tests.fetch_servers._commands import FetchError, Say, run

__all__ = ["MIRROR_VARIABLE", "DebianServer", "mirror_of", "upstream_version"]

#: Environment variable with a Debian mirror, if the machine's own sources have none.
MIRROR_VARIABLE: Final = "STOMPKIT_DEBIAN_MIRROR"

# Packages would start services on installation, and those of the machine itself, since a folder has
# no init system. Debian provides this file to forbid that.
_POLICY: Final = "#!/bin/sh\n# No service is started here.\nexit 101\n"
# No database cluster is created either: tests create their own.
_NO_CLUSTER: Final = "create_main_cluster = false\n"
# Mounts in a separate namespace vanish with it, however this program ends.
_CHROOT: Final = """\
mount --rbind /proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot "$0" "$@"
"""
_UNSHARE: Final = ("unshare", "--mount", "sh", "-ec")
_APT: Final = (
    *("apt-get", "-y", "-q"),
    # A configuration file of a package may have been written here.
    *("-o", "Dpkg::Options::=--force-confold", "-o", "Acquire::Retries=3"),
    # A mirror may be frozen at a certain day. Signatures are verified nevertheless.
    *("-o", "Acquire::Check-Valid-Until=false"),
)
_SOURCES: Final = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)")
_PROXY: Final = "Acquire::http::Proxy"
_CERTIFICATES: Final = Path("etc", "ssl", "certs", "ca-certificates.crt")


@dataclass(frozen=True)
class DebianServer:
    """Packages of a Debian release, in a folder that all servers of that release share."""

    name: str
    """Name of the server here, as in ``rabbitmq-4``."""
    server: str
    """The kind of server."""
    suite: str
    """The release of Debian."""
    packages: tuple[str, ...]
    """The packages to install; the first one determines the version."""

    @property
    def about(self) -> str:
        """Description of its origin."""
        return f"Debian {self.suite} in a folder"

    def obstacle(self) -> str | None:
        """Return the reason why it cannot be downloaded, with the remedy; ``None`` if it can."""
        if shutil.which("apt-get") is None:
            return "it takes the program apt-get, as Debian and Ubuntu have it"
        if shutil.which("debootstrap", path=_path()) is None:
            return "it takes the program debootstrap (apt-get install debootstrap)"
        return Fetched.obstacle()

    def is_current(self, there: Fetched) -> bool:
        """Return True: the newest packages of Debian are not looked up."""
        return True

    def fetch(self, cache: Path, say: Say, *, newest: bool = False) -> Fetched:
        """Create the folder if it is missing, and install the packages; raise FetchError.

        With ``newest`` the mirror is queried for newer packages than the known ones.
        """
        folder = cache / f"debian-{self.suite}"
        log = cache / "log" / f"{self.name}.log"
        log.unlink(missing_ok=True)
        if not folder.is_dir():
            self._make(folder, log, say)
        say(f"  installs {', '.join(self.packages)} in {folder}")
        self._prepare(folder)
        update = (*_APT, "update")
        install = (*_APT, "install", "--no-install-recommends", *self.packages)
        # The first command completes an interrupted installation.
        self._run_within(folder, ("dpkg", "--force-confold", "--configure", "-a"), log, say)
        if newest:
            self._run_within(folder, update, log, say)
        try:
            self._run_within(folder, install, log, say)
        except FetchError:
            # The mirror may have removed the known packages.
            say("  asks the mirror for newer packages")
            self._run_within(folder, update, log, say)
            self._run_within(folder, install, log, say)
        self._run_within(folder, ("apt-get", "clean"), log, say)
        return Fetched(self.name, self.server, self._version(folder), folder)

    def _make(self, folder: Path, log: Path, say: Say) -> None:
        """Install a minimal system of the release."""
        mirror = os.environ.get(MIRROR_VARIABLE) or _own_mirror()
        if mirror is None:
            raise FetchError(
                "the machine's apt sources name no mirror of Debian (run apt-get update, or name"
                f" one in {MIRROR_VARIABLE})"
            )
        say(f"  makes a Debian {self.suite} in {folder}")
        unfinished = folder.with_name(f"{folder.name}.part")
        if unfinished.exists():
            shutil.rmtree(unfinished)
        debootstrap = shutil.which("debootstrap", path=_path()) or "debootstrap"
        # It mounts, too, and leaves the mounts if it is killed.
        run(
            [
                *(*_UNSHARE, 'exec "$0" "$@"', debootstrap),
                *("--variant=minbase", self.suite, str(unfinished), mirror),
            ],
            log,
            say,
            environment={"PATH": _path(), **_proxy_variables()},
            name="debootstrap",
        )
        unfinished.rename(folder)

    def _prepare(self, folder: Path) -> None:
        """Write the files that packages need for their installation."""
        policy = folder / "usr" / "sbin" / "policy-rc.d"
        policy.write_text(_POLICY, encoding="utf-8")
        policy.chmod(0o755)
        clusters = folder / "etc" / "postgresql-common" / "createcluster.conf"
        clusters.parent.mkdir(exist_ok=True)
        if not clusters.exists():
            clusters.write_text(_NO_CLUSTER, encoding="utf-8")
        # For a mirror with HTTPS: the minimal system has no certificate authorities.
        for path in (Path("etc", "resolv.conf"), _CERTIFICATES):
            ours, theirs = Path("/", path), folder / path
            if ours.exists() and (path != _CERTIFICATES or not theirs.exists()):
                theirs.parent.mkdir(parents=True, exist_ok=True)
                theirs.unlink(missing_ok=True)
                shutil.copy(ours, theirs)

    def _run_within(self, folder: Path, command: tuple[str, ...], log: Path, say: Say) -> None:
        """Run a program of the system in the folder by chroot."""
        run(
            [*_UNSHARE, _CHROOT, str(folder), *command],
            log,
            say,
            environment={
                "PATH": _path(),
                "DEBIAN_FRONTEND": "noninteractive",
                "LC_ALL": "C.UTF-8",
                **_proxy_variables(),
            },
            name=command[0],
        )

    def _version(self, folder: Path) -> str:
        """Return the installed version."""
        asked = subprocess.run(
            [
                *("dpkg-query", f"--admindir={folder / 'var' / 'lib' / 'dpkg'}"),
                *("--show", "--showformat=${Version}", self.packages[0]),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode:
            raise FetchError(f"{self.packages[0]} is not installed in {folder}: remove that folder")
        return upstream_version(asked.stdout)


def mirror_of(listing: str) -> str | None:
    """Return the mirror of Debian in a list of sources: lines of address, origin and label."""
    for line in listing.splitlines():
        address, *others = line.split()
        if others == ["Debian", "Debian"] and address.startswith(("http://", "https://")):
            return address
    return None


def upstream_version(version: str) -> str:
    """Return the version of a program from that of its package: 11.8.6 in 1:11.8.6-0+deb13u1."""
    without_epoch = version.rpartition(":")[2]
    without_revision = without_epoch.rpartition("-")[0] or without_epoch
    return re.split("[+~]", without_revision)[0]


def _own_mirror() -> str | None:
    """Return the mirror of the machine's own sources."""
    asked = subprocess.run(
        [*_SOURCES, "Created-By: Packages"], capture_output=True, text=True, check=False
    )
    return mirror_of(asked.stdout)


def _proxy_variables() -> dict[str, str]:
    """Return the proxy of the machine's apt, as environment variables."""
    asked = subprocess.run(
        ["apt-config", "shell", "PROXY", _PROXY], capture_output=True, text=True, check=False
    )
    found = re.fullmatch(r"PROXY='(.+)'\s*", asked.stdout)
    return {"http_proxy": found.group(1)} if found and "http_proxy" not in os.environ else {}


def _path() -> str:
    """Return PATH with the folders for administrators."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
