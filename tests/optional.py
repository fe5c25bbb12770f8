"""Optional programs, without which tests are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NoReturn

import pytest

from stompkit.testing.plugin import settings_of

__all__ = ["report_missing"]

_PACKAGES: Final = Path(__file__).resolve().parents[1] / ".ci" / "debian-packages"


def report_missing(config: pytest.Config, reason: str, package: str) -> NoReturn:
    """Skip a test for which a program is missing; ``package`` is its Debian package.

    Where a missing broker fails a test, a missing program does too, but only if CI installs it.
    """
    installed = _PACKAGES.read_text(encoding="utf-8").splitlines()
    is_failure = settings_of(config).missing == "fail" and package in installed
    outcome = pytest.fail if is_failure else pytest.skip
    raise outcome.Exception(reason, pytrace=False)
