"""Check what a start would need: ports, directories, files and optional packages."""

from __future__ import annotations

import errno
import importlib.util
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from stompkit._common.addresses import host_port
from stompkit._common.files import is_locked, reason_of, user_name
from stompkit.server.interfaces import StoreError
from stompkit.server.listen.certificate_dates import certificate_of
from stompkit.server.listen.endpoints import PROXIED, arguments_of
from stompkit.server.process.lock import DirectoryLock
from stompkit.server.process.start_warnings import start_warnings
from stompkit.server.settings.process import Settings
from stompkit.server.stores.sql import is_postgresql

if TYPE_CHECKING:
    from stompkit.server.stores.postgresql.store import PostgresStore

__all__ = ["StartReport", "check_start"]

_TCP: Final = ("tcp", "tcp6", "ssl", "stomps")
#: Arguments of endpoints that name files with a private key.
_KEYS: Final = ("key", "privateKey", "certificate")
#: Kinds of checkers whose argument is a file of users.
_USER_FILES: Final = ("stompkit", "file", "ini", "json")
#: Time before the end of a certificate in which it has to be renewed, as in the alerting rules.
_RENEWAL: Final = timedelta(days=14)
_PRIVATE_KEY: Final = b"PRIVATE KEY-----"


class StartReport(NamedTuple):
    """Results of the checks: problems prevent the start, warnings do not."""

    problems: list[str]
    warnings: list[str]


def check_start(settings: Settings, file: Path) -> StartReport:
    """Try what a start with the valid settings of a file would do, as the current user.

    Nothing is created, changed or listened on. A port in use is a warning, since the running broker
    may use it.
    """
    report = StartReport([], [])
    _check_directory(settings, report)
    _check_database(settings, report)
    _check_log_file(settings, report)
    _check_ports(settings, report)
    _check_packages(settings, report)
    for place, path in _secret_files(settings, file):
        _check_access(place, path, report)
    _check_certificates(settings, report)
    report.warnings.extend(start_warnings(settings))
    return report


def _check_directory(settings: Settings, report: StartReport) -> None:
    store = settings.store
    if store.path is None:
        return
    path = Path(store.path).absolute()
    problem = _unwritable(path) or _unusable_file(path)
    if problem is not None:
        report.problems.append(f"[store] path: cannot keep messages in {path}: {problem}")
        return
    lock = DirectoryLock(path)
    if is_locked(lock.path):
        report.warnings.append(
            f"[store] path: {path} is in use by {lock.holder()}; a second broker waits for its end"
        )


def _unwritable(directory: Path) -> str | None:
    """Return why no files can be created in a directory, or the directory itself cannot."""
    existing = directory
    try:
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        if not existing.is_dir():
            return f"{existing} is a file. Name a directory"
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        advice = ""
        if error.errno in (errno.EACCES, errno.EPERM):
            advice = ". Change its owner, or start the broker as another user"
        return f"{_user()} cannot write to {existing}: {reason_of(error)}{advice}"


def _unusable_file(directory: Path) -> str | None:
    """Return why the broker could not write to the files of its store, such as those of root."""
    store = directory / "messages.lmdb"
    for path in (DirectoryLock(directory).path, store, *sorted(store.glob("*"))):
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            return (
                f"{_user()} cannot write {path}. Change the owner of {directory} and everything in"
                " it, or start the broker as another user"
            )
    return None


def _check_database(settings: Settings, report: StartReport) -> None:
    url = settings.store.database_url
    if url is None or settings.store.effective_kind != "sqlalchemy":
        return
    # Imported here since SQLAlchemy and psycopg are optional dependencies.
    from stompkit.server.stores.database import Database

    database: Database | PostgresStore
    if is_postgresql(url):
        from stompkit.server.stores.postgresql.store import PostgresStore as Store

        database = Store(url)
    else:
        database = Database(url, synchronous=True)
    if isinstance(database, Database) and database.file is not None:
        problem = _unwritable(database.file.absolute().parent)
        if problem is not None:
            report.problems.append(f"[store] url: cannot write {database.file}: {problem}")
        return
    try:
        database.check_connection()
    except StoreError as error:
        report.problems.append(f"[store] url: {error}")


def _check_log_file(settings: Settings, report: StartReport) -> None:
    if settings.log.file is None:
        return
    path = Path(settings.log.file).absolute()
    problem = None
    if path.is_dir():
        problem = "it is a directory"
    elif path.exists():
        if not os.access(path, os.W_OK):
            problem = f"{_user()} cannot write it"
    elif not path.parent.is_dir():
        problem = f"there is no directory {path.parent}"
    else:
        problem = _unwritable(path.parent)
    if problem is not None:
        report.problems.append(f"[log] file: cannot log to {path}: {problem}")


# Ports.


def _endpoints(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the place of each endpoint in the settings, and its description."""
    for number, description in enumerate(settings.descriptions, 1):
        yield f"[[listen]] #{number} endpoint", description
    for number, listener in enumerate(settings.websockets, 1):
        yield f"[[websocket]] #{number} endpoint", listener.endpoint
    for description in settings.beanstalk.endpoints:
        yield "[beanstalk] endpoints", description
    for description in settings.admin.endpoints:
        yield "[admin] endpoints", description


def _check_ports(settings: Settings, report: StartReport) -> None:
    used: dict[tuple[str, str], str] = {}
    for place, description in _endpoints(settings):
        inner = description.removeprefix(PROXIED)
        kind, arguments = arguments_of(inner)
        if kind == "unix":
            path = Path(inner.removeprefix("unix:").partition(":")[0]).absolute()
            problem = _unwritable(path.parent)
            if problem is not None:
                report.problems.append(f"{place}: cannot listen on {description}: {problem}")
        if kind not in _TCP:
            continue
        host, port = arguments.get("interface", ""), arguments.get("port", inner.split(":")[1])
        first = used.setdefault((host, port), place)
        if port != "0" and first != place:
            report.problems.append(f"{place}: {description} is also the address of {first}")
            continue
        _try_port(place, description, host or ("::" if kind == "tcp6" else "0.0.0.0"), port, report)


def _try_port(place: str, description: str, host: str, port: str, report: StartReport) -> None:
    """Bind a socket to a port without listening."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As Twisted does: connections that have just ended do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            report.warnings.append(
                f"{place}: {host_port(host, int(port))} is in use, by a running broker or by"
                " another program: `ss -ltnp` shows which"
            )
            return
        reason = reason_of(error)
        if error.errno == errno.EACCES:
            reason = f"{_user()} needs a privilege for a port below 1024. Choose a higher one"
        elif error.errno == errno.EADDRNOTAVAIL:
            reason = f"this machine does not have the address {host}"
        report.problems.append(f"{place}: cannot listen on {description}: {reason}")


# Packages and files.


def _check_packages(settings: Settings, report: StartReport) -> None:
    if settings.admin.endpoints and importlib.util.find_spec("prometheus_client") is None:
        report.warnings.append(
            "[admin] endpoints: /metrics needs prometheus_client: pip install 'stompkit[admin]'"
        )


def _secret_files(settings: Settings, file: Path) -> Iterator[tuple[str, Path]]:
    """Yield the place and path of each file with passwords, tokens or keys."""
    has_passwords = any(each.startswith("memory:") for each in settings.auth.checkers)
    if has_passwords or urlsplit(settings.store.url or "").password:
        yield "this file contains a password", file
    kind, _, rest = (settings.store.url or "").partition(":")
    if kind == "file" and rest:
        yield "[store] url", Path(rest)
    for description in settings.auth.checkers:
        kind, _, rest = description.partition(":")
        if kind in _USER_FILES and rest:
            yield "[auth] checkers", Path(rest)
    if settings.auth.http is not None and settings.auth.http.token_file is not None:
        yield "[auth.http] token_file", Path(settings.auth.http.token_file)
    for name in ("token_file", "read_token_file"):
        path = getattr(settings.admin, name)
        if path is not None:
            yield f"[admin] {name}", Path(path)
    for place, description in _endpoints(settings):
        _, arguments = arguments_of(description.removeprefix(PROXIED))
        for name in _KEYS:
            path = Path(arguments.get(name, ""))
            if name in arguments and path.is_file() and _PRIVATE_KEY in path.read_bytes():
                yield place, path


def _check_access(place: str, path: Path, report: StartReport) -> None:
    """Warn of a file that every user of the machine can read or change."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # it has been reported with the settings
    what = []
    if mode & stat.S_IROTH:
        what.append("read")
    if mode & stat.S_IWOTH:
        what.append("change")
    if what:
        report.warnings.append(
            f"{place}: every user of this machine can {' and '.join(what)} {path} (mode"
            f" {stat.S_IMODE(mode):o}): chmod 640 {path}"
        )


def _check_certificates(settings: Settings, report: StartReport) -> None:
    for place, description in _endpoints(settings):
        path = certificate_of(description)
        if path is None:
            continue
        from stompkit.server.listen.tls_endpoint import expiry_of

        try:
            end = expiry_of(path)
        except (OSError, ValueError):
            continue  # it has been reported with the settings
        left = end - datetime.now(UTC)
        if left <= timedelta():
            report.warnings.append(
                f"{place}: the certificate in {path} has expired, so that clients refuse it:"
                " renew it"
            )
        elif left < _RENEWAL:
            report.warnings.append(
                f"{place}: the certificate in {path} expires on {end:%Y-%m-%d %H:%M} UTC, after"
                " which clients refuse it: renew it"
            )


def _user() -> str:
    return f"user {user_name()}"
