"""Find out which servers and programs of ``.ci/debian-packages`` are missing on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stompkit.testing.launching.brokers import LAUNCHERS

__all__ = ["missing"]

_BROKERS: Final = ("activemq", "rabbitmq", "coilmq")
_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
#: Programs that tests use, each with its Debian package.
_PROGRAMS: Final = {
    "mariadbd": "mariadb-server",
    "redis-server": "redis-server",
    "pgbouncer": "pgbouncer",
    "beanstalkd": "beanstalkd",
    "chromium": "chromium",
    "java": "default-jre-headless",
    "node": "nodejs",
    "npm": "npm",
    "ruby": "ruby-stomp",
    "php": "php-cli",
    "gcc": "gcc",
    "fish": "fish",
    "zsh": "zsh",
    "valgrind": "valgrind",
    "logrotate": "logrotate",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
}
#: Files of packages without a program on the path.
_FILES: Final = {
    "PostgreSQL": ("/usr/lib/postgresql", "*/bin/postgres", "postgresql"),
    "Net::Stomp": ("/usr/share/perl5/Net", "Stomp.pm", "libnet-stomp-perl"),
    "PHP's stomp": ("/usr/lib/php", "*/stomp.so", "php-stomp"),
}


def missing() -> Iterator[tuple[str, str]]:
    """Yield each missing server or program, with the way to install it."""
    for name in _BROKERS:
        problem = LAUNCHERS[name].missing()
        if problem is not None:
            yield name, problem
    for program, package in _PROGRAMS.items():
        if shutil.which(program, path=_PATH) is None:
            yield program, f"apt-get install {package}"
    for name, (folder, pattern, package) in _FILES.items():
        if not any(Path(folder).glob(pattern)):
            yield name, f"apt-get install {package}"
