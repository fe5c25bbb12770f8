"""Draws the states of a session from their table: ``sessions.dot`` and ``sessions.rst``.

Run it after a change of ``stompkit/frames/_states.py``; ``--check`` changes nothing, and exits
with 1 where the files differ from the table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

from docs.generated import write_pages
from stompkit.frames import TRANSITIONS, Role, State, _states

__all__ = ["main"]

_INTRODUCTION = """\
.. Made by docs/make_state_diagram.py from stompkit/frames/_states.py: change that instead.

Session states
==============

This page is for developers of clients and brokers. A connection is always in one of these states.
Both ends have the same state, except for frames in transit. ``stompkit.frames.Session`` keeps the
state, and ``stompkit.frames.TRANSITIONS`` is the table of transitions.
"""
_TABLES = """\
Allowed frames
--------------

A frame that is not listed for its sender and the state is a protocol error. ``Session`` raises
``LocalProtocolError`` if this end is about to send it, and ``RemoteProtocolError`` if the other end
sent it.

* The server may send MESSAGE and RECEIPT after the client's DISCONNECT, because they may have been
  in transit. The receipt for DISCONNECT follows them.
* A server ignores bytes after DISCONNECT. Both ends ignore bytes after ERROR.
* The end of the stream leads to CLOSED from every state.
"""
_PICTURE = """\
State diagram
-------------

The diagram is in ``sessions.dot``, for ``dot -Tsvg``. Solid arrows are frames of the client, dashed
arrows are frames of the server.

::
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or check them; return the exit status."""
    return write_pages("make_state_diagram.py", __doc__, _pages, arguments)


def _pages() -> dict[str, str]:
    return {"sessions.dot": dot(), "sessions.rst": page()}


def meanings() -> dict[State, str]:
    """Return the meaning of each state, from the docstring of the table's module."""
    lines = re.findall(r"^ {4}([A-Z]+) +(.+)$", _states.__doc__ or "", re.MULTILINE)
    return {State[name]: text for name, text in lines}


def dot() -> str:
    """Return the diagram in the language of Graphviz."""
    return "\n".join(["digraph sessions {", "    rankdir=LR;", *_statements(), "}", ""])


def _statements() -> Iterator[str]:
    for state in State:
        yield f"    {state.name};"
    for role, state in TRANSITIONS:
        style = "solid" if role is Role.CLIENT else "dashed"
        for following, commands in _moves(role, state).items():
            label = "\\n".join(commands)
            yield f'    {state.name} -> {following.name} [style={style}, label="{label}"];'
    yield f"    {{{' '.join(s.name for s in State if s is not State.CLOSED)}}} -> CLOSED ["
    yield '        style=dotted, label="end of stream"];'


def page() -> str:
    """Return the page of the manual."""
    text = [_INTRODUCTION]
    text += [f"{state.name}\n    {meaning}.\n" for state, meaning in meanings().items()]
    text.append(_TABLES)
    text += [_table(role) for role in Role]
    text.append(_PICTURE)
    text += [f"    {line}".rstrip() for line in dot().splitlines()]
    return "\n".join(text) + "\n"


def _table(role: Role) -> str:
    text = [f".. list-table:: Frames of the {role.value}\n   :header-rows: 1\n"]
    text.append("   * - State\n     - Frames\n     - Next state")
    for state in State:
        moves = _moves(role, state)
        for following, commands in moves.items():
            text.append(
                f"   * - {state.name}\n     - {', '.join(commands)}\n     - {following.name}"
            )
        if not moves:
            text.append(f"   * - {state.name}\n     - none\n     -")
    return "\n".join([*text, ""])


def _moves(role: Role, state: State) -> dict[State, list[str]]:
    """Return the commands that lead from one state to each other."""
    moves: dict[State, list[str]] = {}
    for command, following in TRANSITIONS[role, state].items():
        moves.setdefault(following, []).append(command)
    return moves


if __name__ == "__main__":
    sys.exit(main())
