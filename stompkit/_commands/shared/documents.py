"""Shared JSON output: observed frames and checked files."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["checked", "frame_document", "now"]


def now() -> str:
    """Return the UTC time to the millisecond, in ISO 8601 format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def checked(file: Path, problems: Sequence[str]) -> dict[str, object]:
    """Return the result of the check of a file or a directory."""
    return {"file": str(file), "is_ok": not problems, "problems": list(problems)}


def frame_document(
    time: str,
    direction: str,
    peer: str,
    command: str,
    headers: Iterable[tuple[str, str]],
    body: bytes | None,
    body_octets: int,
) -> dict[str, Any]:
    """Return an observed frame; ``body`` is ``None`` if only its size is known."""
    document: dict[str, Any] = {
        "time": time,
        "direction": direction,
        "peer": peer,
        "command": command,
        "headers": [[name, value] for name, value in headers],
        "body_octets": body_octets,
    }
    if body is not None:
        try:
            document["body"] = body.decode("utf-8")
        except UnicodeDecodeError:
            document["body_base64"] = base64.b64encode(body).decode("ascii")
    return document
