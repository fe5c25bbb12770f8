"""Commands in new namespaces of Linux; tests are skipped where these are not permitted."""

from __future__ import annotations

import subprocess

import pytest

__all__ = ["unshared"]


def unshared(namespaces: str, script: str, *arguments: str) -> list[str]:
    """Return the command before another that runs in new namespaces, given as ``unshare`` does.

    The script prepares them, with the arguments as ``$1`` and so on, and ends with ``exec "$@"``
    after it has shifted them. It skips the test where namespaces are not permitted.
    """
    command = ["unshare", namespaces, "sh", "-c", script, "sh", *arguments]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if done.returncode != 0:
        pytest.skip("namespaces are not permitted")
    return command
