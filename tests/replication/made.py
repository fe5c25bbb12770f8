"""Changes and changesets drawn by Hypothesis."""

from __future__ import annotations

import json
from datetime import UTC, timedelta, timezone
from functools import partial

from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset, Revision, RowChange, Source
from stompkit.replication.model.values import NoDate, document, interval

__all__ = ["changes", "changesets", "documents", "intervals", "rows", "values"]

_ZONES = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=8))]
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
#: Texts as a database writes them, some of which JSON readers would change.
_JSON_TEXTS = st.one_of(
    _DOCUMENTS.map(partial(json.dumps, ensure_ascii=False)),
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30).map(
        "{:f}".format
    ),
    st.sampled_from(
        [
            '{"a":1,"a":2}',
            '{"a":0.10000000000000000001}',
            '"\\ud83d"',
            "[1e400]",
            "[" * 200 + "]" * 200,
            '"null"',
            "null",
            "1.50",
        ]
    ),
)
documents = _JSON_TEXTS.map(document)
_INT32 = st.integers(-(2**31), 2**31 - 1)
intervals = st.builds(interval, _INT32, _INT32, st.integers(-(2**62), 2**62)) | st.builds(
    interval, st.just(0), st.integers(-3, 3), st.integers(-(10**11), 10**11)
)

#: Possible values of a column; not NaN, which is not equal to itself.
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    _TEXT,
    st.decimals(allow_nan=False, allow_infinity=False),
    st.dates(),
    st.times() | st.times(timezones=_ZONES),
    st.datetimes() | st.datetimes(timezones=_ZONES),
    st.timedeltas(),
    st.binary(max_size=8),
    st.uuids(),
    st.dictionaries(_TEXT, _DOCUMENTS, max_size=3),
    st.lists(_DOCUMENTS, max_size=3),
    st.frozensets(_TEXT, max_size=3),
    documents,
    intervals,
    st.sampled_from([NoDate("0000-00-00"), NoDate("2026-02-31 23:59:59.000001")]),
)
rows = st.dictionaries(_TEXT, values, max_size=4)
_OPTIONAL = st.none() | rows

changes = st.builds(
    RowChange,
    table=_TEXT,
    action=st.sampled_from(["write", "update", "delete", "read", "truncate", "schema"]),
    key=rows,
    before=_OPTIONAL,
    after=_OPTIONAL,
    old_key=_OPTIONAL,
    schema=_TEXT,
)
_SOURCES = st.builds(
    Source,
    kind=_TEXT,
    server=_TEXT,
    position=_TEXT,
    transaction=_TEXT,
    time=st.none() | st.datetimes(timezones=st.just(UTC)),
    is_snapshot=st.booleans(),
)
_REVISIONS = st.builds(
    Revision,
    trunk=_TEXT,
    hlc=st.integers(0, 2**63 - 1),
    context=st.dictionaries(_TEXT, st.integers(1, 2**63 - 1), max_size=3),
    previous=_TEXT,
    replaces=st.lists(st.tuples(_TEXT, st.integers(1, 2**63 - 1), _TEXT), max_size=2).map(tuple),
    author=_TEXT,
    comment=_TEXT,
)
changesets = st.builds(
    Changeset,
    id=_TEXT,
    origin=_TEXT,
    sequence=st.integers(0, 2**63 - 1),
    timestamp=st.datetimes(timezones=st.just(UTC)),
    changes=st.lists(changes, max_size=5).map(tuple),
    source=_SOURCES,
    parents=st.lists(_TEXT, max_size=2).map(tuple),
    revision=st.none() | _REVISIONS,
)
