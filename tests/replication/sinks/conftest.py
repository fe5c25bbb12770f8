"""The choice of databases for tests of sinks, with each change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

#: Tests of statements, types or errors of a database. Other files have their tests on MariaDB in
#: the matrix lane.
_ON_ALL: Final = ("test_sql_values", "test_sql_schema", "test_sql_rows", "test_sql_failures")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Put the others into the matrix lane, before pytest selects tests by their marks."""
    for each in items:
        if each.path.parent.name == "sinks" and each.path.stem not in _ON_ALL:
            callspec = getattr(each, "callspec", None)
            if callspec is not None and callspec.params.get("target") == "mariadb":
                each.add_marker(pytest.mark.matrix)
