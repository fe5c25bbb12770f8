"""Check the settings of the admin HTTP interface."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stompkit._common.files import describe
from stompkit.server.settings.endpoint_checks import check_endpoint, is_local

if TYPE_CHECKING:
    from stompkit.server.settings.admin import AdminSettings
    from stompkit.server.settings.toml import Document

__all__ = ["check_admin", "token_in"]

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
                f"item {number}: other machines can reach {description} and control the broker"
                " without a token. Set token_file, or add :interface=127.0.0.1.",
            )
    tokens = [
        _checked_token(document, name, path)
        for name, path in (
            ("token_file", admin.token_file),
            ("read_token_file", admin.read_token_file),
        )
        if path is not None
    ]
    if admin.read_token_file is not None and admin.token_file is None:
        document.add(
            ("admin", "read_token_file"),
            "has no effect without token_file: without that, everybody may change everything",
        )
    elif len(tokens) > 1 and tokens[0] is not None and tokens[0] == tokens[1]:
        document.add(("admin", "read_token_file"), "must not have the token of token_file")


def _checked_token(document: Document, name: str, path: str) -> bytes | None:
    try:
        return token_in(path)
    except OSError as error:
        document.add(("admin", name), describe(error))
    except ValueError as error:
        document.add(("admin", name), str(error))
    return None


def token_in(path: str) -> bytes:
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
