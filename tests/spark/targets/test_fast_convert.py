"""Values that are converted without decoding: as valid as those that are decoded."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.dialects.postgresql import DATE, TIMESTAMP

from stompkit.replication.sql import TargetColumn
from stompkit.spark.targets.planning.fast_convert import quick

ZONED, LOCAL = TIMESTAMP(timezone=True), TIMESTAMP()


@pytest.mark.parametrize(
    ("type_", "tag", "text", "is_valid"),
    [
        (ZONED, "$datetime", "2026-01-31T10:00:00.5+05:45", True),
        (ZONED, "$datetime", "2026-02-30T10:00:00+00:00", False),
        (ZONED, "$datetime", "2026-01-31T10:00:00", False),
        (LOCAL, "$datetime", "2026-01-31T10:00:00.5", True),
        (LOCAL, "$datetime", "2026-02-30T10:00:00", False),
        (LOCAL, "$datetime", "2026-01-31T10:00:00+05:45", False),
        (DATE(), "$date", "2026-01-31", True),
        (DATE(), "$date", "2026-02-30", False),
    ],
)
def test_only_times_that_exist_are_given_to_the_database_as_text(
    type_: Any,
    tag: str,
    text: str,
    *,
    is_valid: bool,
) -> None:
    column = TargetColumn("c", "c", type_, lambda value: value, frozenset(), False, False)
    found = quick(column, [{tag: text}, None], "postgresql")
    assert found == ([text, None] if is_valid else None)
