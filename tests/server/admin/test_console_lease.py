"""The console of a broker that shares its store by a lease."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser import Chromium
from tests.server.admin.consoles import Console, operated
from tests.servers import SqlServer, postgresql

__all__ = ["postgresql"]


@pytest.mark.matrix
def test_the_overview_shows_the_lease(
    browser: Chromium, postgresql: SqlServer, tmp_path: Path
) -> None:
    url = postgresql.url(postgresql.new_database())
    settings = (
        f'[store]\nurl = "{url}"\n'
        '[high_availability]\nlease = "database"\nname = "mq-1"\nlease_s = 600'
    )
    with operated(tmp_path, settings) as broker:
        browser.emulate()
        console = Console(browser, broker)
        console.open()
        for text in (
            "mq-1, active",
            "mq-1 (active)",
            "Epoch\n1",
            "Last renewal",
            "Last change",
        ):
            console.wait_text(text)
        for name in ("Last renewal", "Last change"):
            assert re.search(rf"{name}\n\d+ s ago", console.text())
        assert browser.complaints() == []
