"""Writes the reference of all settings, ``configuration.rst``, from the structs that they are.

Run it after a change of a struct of the settings or of what is said about its attributes;
``--check`` changes nothing, and exits with 1 where the file differs from the structs.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from stompkit.server import Policy
from stompkit.server.settings.process import Settings
from stompkit.server.settings.schema import REQUIRED, Field, described, fields, table_of, tables_of
from stompkit.server.settings.text import literal

__all__ = ["main"]

_NAME: Final = "configuration.rst"
_WIDTH: Final = 100
_INTRODUCTION: Final = """\
.. Made by docs/make_configuration.py from the structs of the settings: change those instead.

The settings of a broker
========================

``twistd stompkit --config FILE`` reads them from a file, TOML, in which everything has a default.
What the command line says stands over the file. ::

    stompkit show-config > stompkit.toml      # all settings, each with its default and meaning
    stompkit check-config stompkit.toml       # every mistake, with its line and what to do

``docs/examples/stompkit.toml`` is one for a small team. Relative paths, in the file and on the
command line, are relative to the directory in which the broker is started.

Changes without a restart
-------------------------

SIGHUP has a broker read its file again. A file with mistakes changes nothing, and the log has all
of them. Otherwise settings of destinations hold at once, also for those that exist; limits and
``[auth]`` for clients that connect from now on; ``[[rights]]`` for what clients ask for from now
on. ``[store]``, ``[[listen]]``, ``hosts`` and ``storage`` stay as they are until the broker is
started again; the log says so where they have changed.

A second broker
---------------

A broker locks the directory of its data. Another one that is started with the same directory says
in its log for whom it waits, listens nowhere, and takes over when the first has ended, however
that came about. Both may have the same address, or clients know both. ``lock_timeout_s`` bounds
the wait. The directory must not be on a network's file system, which LMDB does not work on.

Logs
----

``twistd`` and ``twist`` say where the log goes: ``twistd --logfile``, ``--syslog``, ``twist
--log-file``. ``[log]`` says what it looks like, also where ``twist --log-format`` says otherwise;
``twistd --logger`` and ``--syslog`` have a form of their own. In JSON, ``text`` is the event as it
would be in the other format.
"""


class _Table(NamedTuple):
    """A table of the file: its header, its class, and defaults."""

    header: str
    cls: type
    text: str
    default: object


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or check it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(__file__).parent / "reference",
        metavar="DIR",
        help="where it is",
    )
    options = parser.parse_args(arguments)
    path = options.into / _NAME
    text = page()
    if not options.check:
        path.write_text(text, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        print(f"{path} is not what make_configuration.py makes of the structs", file=sys.stderr)
        return 1
    return 0


def page() -> str:
    """Return the page of the manual."""
    tables = list(_tables())
    lines = [_INTRODUCTION]
    for table in tables:
        lines += _section(table)
    lines += _limits(tables)
    return "\n".join(lines).rstrip("\n") + "\n"


def _tables() -> Iterator[_Table]:
    for each in fields(Settings):
        single, several = table_of(each.hint), tables_of(each.hint)
        if several is not None:
            yield _Table(f"[[{each.name}]]", several, several.__doc__ or "", None)
        elif single is not None:
            yield from _with_inner(single, each.name, single.__doc__ or "", each.default)


def _with_inner(cls: type, name: str, text: str, default: object) -> Iterator[_Table]:
    yield _Table(f"[{name}]", cls, text, default)
    for each in fields(cls):
        inner = table_of(each.hint)
        if inner is not None:
            own = getattr(default, each.attribute)
            yield from _with_inner(inner, f"{name}.{each.name}", each.text, own)


def _keys(table: _Table) -> Iterator[Field]:
    """Yield the keys of a table that are not tables, with their defaults there."""
    for each in fields(table.cls):
        if table_of(each.hint) is None and tables_of(each.hint) is None:
            usual = each.default
            if table.default is not None:
                usual = getattr(table.default, each.attribute)
            yield each._replace(default=usual)


def _section(table: _Table) -> Iterator[str]:
    title = f"``{table.header}``"
    yield f"{title}\n{'-' * len(title)}\n"
    for paragraph in table.text.split("\n\n"):
        yield _filled(paragraph) + "\n"
    for each in _keys(table):
        if not each.text:
            # The broker's table has the documentation.
            assert each.attribute in Policy.__struct_fields__, f"{each.name} has no documentation"
            continue
        yield f"``{each.name}``"
        yield _filled(_facts(each), indent=4) + "\n"
        yield _filled(each.text, indent=4) + "\n"
    inherited = [f"``{each.name}``" for each in _keys(table) if not each.text]
    if inherited:
        yield _filled(f"As in ``[broker]``: {', '.join(inherited)}.") + "\n"


def _facts(each: Field) -> str:
    """Return type, unit and default of a key."""
    what = described(each.hint)
    what = what.replace('"', "``") if '"' in what else what
    unit = _unit(each.name)
    of_unit = f", in {unit}" if unit else ""
    if each.default is REQUIRED:
        return f"{what}{of_unit}; has to be there"
    if each.default is None:
        return f"{what}{of_unit}; by default not said"
    return f"{what}{of_unit}; default {_shown(each)}"


def _unit(name: str) -> str:
    units = {
        "_ms": "milliseconds",
        "_s": "seconds",
        "_bytes": "octets",
        "_octets": "octets",
    }
    return next((unit for suffix, unit in units.items() if name.endswith(suffix)), "")


def _shown(each: Field) -> str:
    """Return a default, a large one also in words."""
    text = f"``{literal(each.default)}``"
    if not isinstance(each.default, int | float) or isinstance(each.default, bool):
        return text
    steps = {
        "octets": [(1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")],
        "seconds": [(24 * 3600, "days"), (3600, "hours"), (60, "minutes")],
    }
    for size, name in steps.get(_unit(each.name), []):
        if each.default and each.default % size == 0:
            return f"{text} ({each.default / size:.0f} {name})"
    return text


def _limits(tables: Sequence[_Table]) -> Iterator[str]:
    """Return a table of all limits."""
    yield "All limits\n----------\n"
    yield ".. list-table::\n   :header-rows: 1\n"
    yield "   * - Setting\n     - Default\n     - What is bounded"
    for table in tables:
        for each in _keys(table):
            is_bound = each.name.startswith("max_") or "_timeout_" in each.name
            if is_bound and each.default is not None and each.text:
                yield f"   * - ``{table.header} {each.name}``"
                yield f"     - {_shown(each)}"
                yield "     - " + each.text.partition(". ")[0].partition("; ")[0].rstrip(".")
    yield ""


def _filled(text: str, *, indent: int = 0) -> str:
    blanks = " " * indent
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=blanks,
        subsequent_indent=blanks,
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.exit(main())
