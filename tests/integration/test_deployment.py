"""The page on deployment, line by line, on a Debian that systemd boots in a container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.testing.launching.fetched import cache_folder
from tests.fetch_servers._debian import DebianServer

pytestmark = pytest.mark.matrix

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "deployment.rst"
LONG_S = 300.0
#: What a server that somebody deploys to has.
SYSTEM = DebianServer(
    name="deployment",
    server="systemd",
    suite="bookworm",
    packages=("systemd", "systemd-sysv", "dbus", "python3-venv"),
)
#: The authorities that this machine trusts: pip downloads through its proxy, if there is one.
CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt",)
#: Ends the container with the status of the last command.
BEGIN = """\
#!/bin/bash
exec > /shared/log 2>&1
set -ex
trap 'echo $? > /shared/status; systemctl poweroff --no-block' EXIT
export SYSTEMD_PAGER=cat PIP_CERT=/etc/ssl/certs/ca-certificates.crt STOMPKIT_PURE=1
echo '127.0.0.1 localhost' >> /etc/hosts
cd /shared/source
"""
#: After the page: a message survives a reload, a crash and a restart.
END = """\
export STOMPKIT_URL=stomp://alice@localhost STOMPKIT_PASSCODE=secret
PATH=/opt/stompkit/bin:$PATH
stompkit send /queue/a hello
systemctl reload stompkit
systemctl show --property StatusText stompkit | grep listening
systemctl kill --signal KILL stompkit
systemctl restart stompkit
[ "$(stompkit receive /queue/a --count 1)" = hello ]
systemctl is-active stompkit
systemctl stop stompkit
! stompkit ping
"""
UNIT = """\
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/shared/walk
"""


@pytest.fixture
def system() -> Path:
    """A minimal Debian with systemd in a folder, which stays for later runs."""
    if shutil.which("systemd-nspawn") is None:
        pytest.skip("systemd-nspawn is not installed (apt-get install systemd-container)")
    if os.geteuid() != 0:
        pytest.skip("it takes root")
    obstacle = SYSTEM.obstacle()
    if obstacle is not None:
        pytest.skip(obstacle)
    cache = cache_folder()
    (cache / "log").mkdir(parents=True, exist_ok=True)
    folder = SYSTEM.fetch(cache, print).folder
    units = folder / "etc" / "systemd" / "system"
    (units / "walk.service").write_text(UNIT, encoding="utf-8")
    wants = units / "default.target.wants"
    wants.mkdir(exist_ok=True)
    if not (wants / "walk.service").is_symlink():
        (wants / "walk.service").symlink_to("../walk.service")
    return folder


def blocks() -> Iterator[str]:
    """Yield the commands of the section about systemd; settings become a command that writes."""
    section = PAGE.read_text(encoding="utf-8").partition("\nsystemd\n-------\n")[2]
    section = section.partition("\nNotifications to systemd\n")[0]
    found = re.findall(r"code-block:: (\w+)\n\n((?:    .*\n|\n)+)", section)
    for language, indented in found:
        text = textwrap.dedent(indented)
        if language == "toml":
            text = f"cat > /etc/stompkit/stompkit.toml <<'END'\n{text}END\n"
        yield text


def test_the_page_leads_to_a_running_broker(system: Path, tmp_path: Path) -> None:
    walk = BEGIN + "".join(blocks()) + END
    # The passcode is asked for, and is left out on the page.
    walk = re.sub(r"^(?=\S+stompkit passwd)", "echo secret | ", walk, flags=re.MULTILINE)
    walk = walk.replace("STOMPKIT_PASSCODE=...", "STOMPKIT_PASSCODE=secret")
    assert walk.count("secret") == 3
    script = tmp_path / "walk"
    script.write_text(walk, encoding="utf-8")
    script.chmod(0o755)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in tracked.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith("tests/"):
            target = tmp_path / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    done = subprocess.run(
        [
            *("unshare", "--mount", "systemd-nspawn", "--quiet", "--boot", "--directory", system),
            *("--register=no", "--keep-unit", "--volatile=overlay", "--resolv-conf=off"),
            f"--bind={tmp_path}:/shared",
            *(f"--bind-ro={each}" for each in CERTIFICATES if Path(each).exists()),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    log = tmp_path / "log"
    printed = log.read_text(encoding="utf-8") if log.exists() else done.stdout + done.stderr
    status = tmp_path / "status"
    assert status.exists() and status.read_text(encoding="utf-8") == "0\n", printed
