"""A server of a newer Debian than the machine's: in a folder, with all that it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stompkit.testing._launching.fetched import Fetched
from tests.fetch_servers._commands import FetchError, Say, run

__all__ = ["MIRROR_VARIABLE", "DebianServer", "mirror_of", "upstream_version"]

#: Names a mirror of Debian where the machine's own sources have none.
MIRROR_VARIABLE: Final = "STOMPKIT_DEBIAN_MIRROR"

# What packages run when they are installed would start services, of the machine itself, since a
# folder has no init system of its own. This is how Debian lets an administrator forbid that.
_POLICY: Final = "#!/bin/sh\n# No service is started here.\nexit 101\n"
# No cluster of databases is made either: tests make their own.
_NO_CLUSTER: Final = "create_main_cluster = false\n"
# Mounts of their own namespace are gone with it, however this program ends.
_CHROOT: Final = """\
mount --rbind /proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot "$0" "$@"
"""
_UNSHARE: Final = ("unshare", "--mount", "sh", "-ec")
_APT: Final = (
    *("apt-get", "-y", "-q"),
    # A configuration file of a package may be one that was written here.
    *("-o", "Dpkg::Options::=--force-confold", "-o", "Acquire::Retries=3"),
    # A mirror may stand still, as those of a certain day do. Signatures are verified all the same.
    *("-o", "Acquire::Check-Valid-Until=false"),
)
_SOURCES: Final = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)")
_PROXY: Final = "Acquire::http::Proxy"
_CERTIFICATES: Final = Path("etc", "ssl", "certs", "ca-certificates.crt")


@dataclass(frozen=True)
class DebianServer:
    """Packages of a release of Debian, in a folder that all servers of that release share."""

    name: str
    """What it is called here, as in ``rabbitmq-4``."""
    server: str
    """The kind of server."""
    suite: str
    """The release of Debian."""
    packages: tuple[str, ...]
    """The packages to install; the first one tells the version."""

    @property
    def about(self) -> str:
        """Where it comes from."""
        return f"Debian {self.suite} in a folder"

    def obstacle(self) -> str | None:
        """Why it can't be fetched on this machine, and what to do; ``None`` where it can."""
        if shutil.which("apt-get") is None:
            return "it takes the program apt-get, as Debian and Ubuntu have it"
        if shutil.which("debootstrap", path=_path()) is None:
            return "it takes the program debootstrap (apt-get install debootstrap)"
        return Fetched.obstacle()

    def is_current(self, there: Fetched) -> bool:
        """Whether what is there need not be fetched again: Debian's newest is not looked up."""
        return True

    def fetch(self, cache: Path, say: Say, *, newest: bool = False) -> Fetched:
        """Make the folder if it is not there, and install the packages; raises FetchError.

        With ``newest`` the mirror is asked for newer packages than those that are known.
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
        # The first finishes what an earlier run may have been ended in.
        self._run_within(folder, ("dpkg", "--force-confold", "--configure", "-a"), log, say)
        if newest:
            self._run_within(folder, update, log, say)
        try:
            self._run_within(folder, install, log, say)
        except FetchError:
            # The packages that were known may be gone from the mirror.
            say("  asks the mirror for newer packages")
            self._run_within(folder, update, log, say)
            self._run_within(folder, install, log, say)
        self._run_within(folder, ("apt-get", "clean"), log, say)
        return Fetched(self.name, self.server, self._version(folder), folder)

    def _make(self, folder: Path, log: Path, say: Say) -> None:
        """Make a system of the release, as small as it gets."""
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
        # It mounts, too, and leaves that behind where it is killed.
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
        """Write what packages have to find when they are installed."""
        policy = folder / "usr" / "sbin" / "policy-rc.d"
        policy.write_text(_POLICY, encoding="utf-8")
        policy.chmod(0o755)
        clusters = folder / "etc" / "postgresql-common" / "createcluster.conf"
        clusters.parent.mkdir(exist_ok=True)
        if not clusters.exists():
            clusters.write_text(_NO_CLUSTER, encoding="utf-8")
        # For a mirror that is reached by HTTPS: the smallest system knows no authorities.
        for path in (Path("etc", "resolv.conf"), _CERTIFICATES):
            ours, theirs = Path("/", path), folder / path
            if ours.exists() and (path != _CERTIFICATES or not theirs.exists()):
                theirs.parent.mkdir(parents=True, exist_ok=True)
                theirs.unlink(missing_ok=True)
                shutil.copy(ours, theirs)

    def _run_within(self, folder: Path, command: tuple[str, ...], log: Path, say: Say) -> None:
        """Run a program of the system in the folder, as if that were the machine."""
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
        """The version that was installed."""
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
    """The mirror of Debian in a list of sources: lines of address, origin and label."""
    for line in listing.splitlines():
        address, *others = line.split()
        if others == ["Debian", "Debian"] and address.startswith(("http://", "https://")):
            return address
    return None


def upstream_version(version: str) -> str:
    """The version of a program in that of its package: 11.8.6 in 1:11.8.6-0+deb13u1."""
    without_epoch = version.rpartition(":")[2]
    without_revision = without_epoch.rpartition("-")[0] or without_epoch
    return re.split("[+~]", without_revision)[0]


def _own_mirror() -> str | None:
    """The mirror of the machine's own sources."""
    asked = subprocess.run(
        [*_SOURCES, "Created-By: Packages"], capture_output=True, text=True, check=False
    )
    return mirror_of(asked.stdout)


def _proxy_variables() -> dict[str, str]:
    """The proxy of the machine's apt, as other programs look for one."""
    asked = subprocess.run(
        ["apt-config", "shell", "PROXY", _PROXY], capture_output=True, text=True, check=False
    )
    found = re.fullmatch(r"PROXY='(.+)'\s*", asked.stdout)
    return {"http_proxy": found.group(1)} if found and "http_proxy" not in os.environ else {}


def _path() -> str:
    """The path of programs with those for administrators."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
