"""The worker on the page about asyncio works, and is shown as it is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from stompkit.testing import LaunchConfig, launch

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "asyncio" / "worker.py"
PAGE = ROOT / "docs" / "howto" / "asyncio.rst"
DEADLINE_S = 60.0
ORDERS = 30


def test_worker_ships_orders_until_it_is_stopped() -> None:
    with launch(LaunchConfig(login="me", passcode="x")) as broker:
        dishes = [b"dish %d" % number for number in range(ORDERS)]
        address = f"stomp://{broker.host}:{broker.port}"
        worker = subprocess.Popen(
            [sys.executable, "-X", "dev", EXAMPLE],
            env=os.environ | {"STOMP_HOSTS": address, "STOMP_LOGIN": "me", "STOMP_PASSCODE": "x"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        with broker.client() as client:
            replies = broker.queue("replies")
            client.subscribe(replies, receipt=True)
            for dish in dishes:
                client.send("/queue/orders", dish, headers={"reply-to": replies})
            found = {client.receive(DEADLINE_S).body for _ in dishes}
        assert found == {b"shipped: " + dish for dish in dishes}
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=DEADLINE_S)
        assert (worker.returncode, said) == (0, "")
        refused = subprocess.run(
            [sys.executable, EXAMPLE],
            env=os.environ | {"STOMP_HOSTS": address, "STOMP_LOGIN": "nobody"},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-1].startswith("the broker refuses: ")


def test_page_shows_the_worker() -> None:
    _, _, code = EXAMPLE.read_text("utf-8").split('"""', 2)
    shown = re.search(
        r"^\.\. examples/asyncio/worker\.py\n\n\.\. code-block:: python\n\n((?: .*\n|\n)*)",
        PAGE.read_text("utf-8"),
        re.MULTILINE,
    )
    assert shown is not None
    assert re.sub("^    ", "", shown[1], flags=re.MULTILINE).strip() == code.strip()
