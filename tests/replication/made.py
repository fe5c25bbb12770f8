"""Changes and changesets made up by Hypothesis."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

from hypothesis import strategies as st

from stompkit.replication.events import Changeset, Revision, RowChange, Source

__all__ = ["changes", "changesets", "rows", "values"]

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

#: What a column may hold; not NaN, which is not equal to itself.
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
