"""Transactions."""

from __future__ import annotations

from stompkit.conformance.clients.caller import Caller
from stompkit.conformance.clients.case import NEW, client_case, of
from stompkit.conformance.clients.client import Client
from stompkit.frames import VERSIONS, Frame


def _transaction(caller: Caller, body: bytes, last: str) -> str:
    """Make the client use a transaction, and check its frames; return the transaction's name."""
    caller.deliver(body)
    caller.expect(last)
    known = {frame.command: frame for frame in caller.frames}
    assert "BEGIN" in known, f"{last} comes without BEGIN"
    names = {command: _name(known.get(command)) for command in ("BEGIN", "SEND", last)}
    assert names["BEGIN"], "BEGIN has no transaction"
    assert set(names.values()) == {names["BEGIN"]}, f"the transactions are {names}"
    order = [frame.command for frame in caller.frames if frame.command in names][-3:]
    assert order == ["BEGIN", "SEND", last], f"the frames come in the order {order}"
    assert known["SEND"].body == body, f"the client sent {known['SEND'].body!r}"
    return names["BEGIN"]


def _name(frame: Frame | None) -> str:
    return "" if frame is None else frame.headers.get("transaction", "")


@client_case(
    "client/transaction/commit",
    "BEGIN, the frames of a transaction and COMMIT name it.",
    level="MUST",
    section="COMMIT",
    covers=[
        *of(VERSIONS, "begin/transaction-required", "commit/transaction-required"),
        *of(NEW, "begin/id-binds", "commit/names-transaction"),
        "1.0/begin/id-binds-frames",
        "1.2/headers/transactions",
    ],
    rests_on=of(VERSIONS, "begin/transaction-required", "commit/transaction-required"),
)
def commit(client: Client) -> None:
    """Have the client send a message in a transaction; three frames come, with one name."""
    _transaction(client.session(), b"commit", "COMMIT")


@client_case(
    "client/transaction/abort",
    "BEGIN, the frames of a transaction and ABORT name it.",
    level="MUST",
    section="ABORT",
    covers=[
        *of(VERSIONS, "abort/transaction-required"),
        *of(NEW, "abort/names-transaction"),
    ],
    rests_on=of(VERSIONS, "begin/transaction-required", "abort/transaction-required"),
)
def abort(client: Client) -> None:
    """Have the client abort a transaction that it has sent a message in."""
    _transaction(client.session(), b"abort", "ABORT")


@client_case(
    "client/transaction/over",
    "A transaction that was committed has no more frames.",
    level="FACT",
    section="COMMIT",
    covers=["1.0/begin/id-binds-frames", *of(NEW, "begin/id-binds")],
)
def over(client: Client) -> None:
    """Have the client use a transaction, and then send a message; no frame names it any more."""
    caller = client.session()
    _transaction(caller, b"commit", "COMMIT")
    caller.expect_send(b"commit")
    caller.echo(b"hello")
    caller.settle()
    place = [frame.command for frame in caller.frames].index("COMMIT")
    late = [frame.command for frame in caller.frames[place + 1 :] if _name(frame)]
    assert not late, f"{late[0]} names a transaction after COMMIT"


@client_case(
    "client/transaction/ids-unique",
    "Transactions of one connection have different names.",
    level="MUST",
    section="BEGIN",
    since="1.2",
    covers=["1.2/begin/id-unique"],
)
def ids_unique(client: Client) -> None:
    """Have the client use three transactions, one after the other."""
    caller = client.session()
    names = [_transaction(caller, b"commit", "COMMIT") for _ in range(3)]
    assert len(set(names)) == len(names), f"the transactions are {', '.join(names)}"
