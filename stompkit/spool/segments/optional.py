"""Import of the module for sealed segments, which needs an optional dependency."""

from __future__ import annotations

from types import ModuleType

from stompkit.spool._errors import SpoolError

__all__ = ["sealed_files"]


def sealed_files() -> ModuleType:
    """Return the module for sealed segments; raises :class:`SpoolError` without pyarrow."""
    try:
        from stompkit.spool.segments import sealed
    except ImportError as error:
        raise SpoolError(
            f"the spool has sealed segments, and reading these needs pyarrow ({error}): it comes"
            " with `pip install stompkit[spark]`"
        ) from None
    return sealed
