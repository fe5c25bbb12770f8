"""Check the settings of the admin HTTP interface."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stompkit.server.settings.endpoint_checks import check_endpoint, is_local

if TYPE_CHECKING:
    from stompkit.server.settings.admin import AdminSettings
    from stompkit.server.settings.toml import Document

__all__ = ["check_admin", "read_token"]

_SHORTEST_TOKEN: Final = 16
_COLON: Final = re.compile(r"(?<!\\):")


def check_admin(admin: AdminSettings, document: Document) -> None:
    """Add all problems to the document."""
    for number, description in enumerate(admin.endpoints, 1):
        try:
            check_endpoint(description)
        except ValueError as error:
            document.add(("admin", "endpoints"), f"item {number}: {error}")
            continue
        if admin.token_file is None and not is_local(description):
            document.add(
                ("admin", "endpoints"),
                f"item {number}: {description} can be reached from elsewhere, and whoever gets in"
                " may do everything: set token_file, or add :interface=127.0.0.1",
            )
    if admin.token_file is not None:
        try:
            read_token(admin.token_file)
        except OSError as error:
            document.add(("admin", "token_file"), f"{error.filename}: {error.strerror}")
        except ValueError as error:
            document.add(("admin", "token_file"), str(error))


def read_token(path: str) -> bytes:
    """Return the token in a file; raises OSError, or ValueError for one that is easy to guess."""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        raise ValueError(f"{path}: a token is of ASCII characters") from None
    if len(token) < _SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise ValueError(
            f"{path}: a token has {_SHORTEST_TOKEN} printable characters or more, as"
            " `openssl rand -hex 32` makes one"
        )
    return token.encode("ascii")
