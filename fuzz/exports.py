"""Exports of stores: an import is complete or leaves nothing; a second export is identical."""

from __future__ import annotations

import io
from typing import Final

from fuzz._driver import main
from stompkit.server.interfaces import StoreError
from stompkit.server.stores.memory import MemoryStore
from stompkit.server.stores.transfer import export_store, import_store

__all__ = ["SEEDS", "check"]

_BEGIN: Final = b'{"kind":"store","version":1,"lanes":%d,"messages":%d,"records":%d}\n'
_END: Final = b'{"kind":"end","lanes":%d,"messages":%d,"records":%d}\n'
_LANE: Final = (
    b'{"kind":"lane","lane":%d,"queue":"\\n/queue/a","part":4,"last_place":%d,'
    b'"delivered_place":1}\n'
)
_MESSAGE: Final = (
    b'{"kind":"message","place":%d,"deliveries":2,"size":20,"expires_ms":0,"due_ms":0,'
    b'"id":"b-1","lines":"content-type:text/plain\\ncontent-length:1","body":"eA=="}\n'
)
_DURABLE: Final = (
    b'{"kind":"record","key":"durable/1","value":"eyJob3N0IjoiIiwibmFtZSI6ImEifQ=="}\n'
)
SEEDS: Final = (
    _BEGIN % (0, 0, 0) + _END % (0, 0, 0),
    _BEGIN % (1, 1, 0) + _LANE % (1, 1) + _MESSAGE % 1 + _END % (1, 1, 0),
    _BEGIN % (2, 3, 1)
    + _LANE % (1, 9)
    + _MESSAGE % 1
    + _MESSAGE % 7
    + _LANE % (2, 3)
    + _MESSAGE % 3
    + _DURABLE
    + _END % (2, 3, 1),
    (_BEGIN % (1, 1, 0) + _LANE % (1, 1) + _MESSAGE % 1).replace(b"b-1", b"\\udcff")
    + _END % (1, 1, 0),
    _BEGIN % (0, 0, 1) + b'{"kind":"record","key":"\\ud800","value":""}\n' + _END % (0, 0, 1),
)


def _silent(done: int, of: int) -> None:
    pass


def check(data: bytes) -> None:
    """Import an export, export the store, import that again, and compare the exports."""
    store = MemoryStore()
    store.open()
    try:
        import_store(store, io.BytesIO(data), _silent)
    except StoreError as error:
        assert str(error)
        assert "could not be removed" not in str(error), str(error)
        assert not store.lanes() and not store.records()
        return
    first = io.BytesIO()
    export_store(store, first, _silent)
    again = MemoryStore()
    again.open()
    import_store(again, io.BytesIO(first.getvalue()), _silent)
    second = io.BytesIO()
    export_store(again, second, _silent)
    assert second.getvalue() == first.getvalue()
    again.close()


if __name__ == "__main__":
    main(__file__)
