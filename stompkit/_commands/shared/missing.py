"""Errors for which a library is missing."""

from __future__ import annotations

from typing import Final

from stompkit._common.files import describe

__all__ = ["reason"]

#: Extras with the libraries that only some databases and settings need.
_EXTRAS: Final = {
    "cryptography": "signing",
    "prometheus_client": "metrics",
    "psycopg": "postgresql",
    "pymysql": "mysql",
    "pymysqlreplication": "mysql",
    "redis": "redis",
}


def reason(error: Exception) -> str:
    """Return the cause of an error, or the extra to install if a library is missing."""
    if isinstance(error, ModuleNotFoundError):
        library = (error.name or "").partition(".")[0]
        if library in _EXTRAS:
            return f"this needs {library}: pip install 'stompkit[{_EXTRAS[library]}]'"
    return describe(error)
