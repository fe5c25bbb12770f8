"""Documents: JSON objects by collection and id, in one table of the replica.

For replication, a collection is a table called ``doc.<collection>``, an id is its key, and the
members of a document are its columns. So replicas can change different members of a document
concurrently. A member's value is changed as a whole, and a removed member is NULL.

The table has the columns ``collection``, ``id`` and ``body``. ``body`` is the document in JSON, as
returned by :meth:`Documents.get`. An object whose only member begins with ``$`` is wrapped in its
type, as :mod:`stompkit.replication.model.values` writes it. Programs may read the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Final

from sqlalchemy import Engine

from stompkit._common.moved import renamed
from stompkit.replica.data._bodies import (
    body_of,
    document_of,
    json_copy,
    members_of,
    name_problem,
    values_of,
)
from stompkit.replica.data._document_table import SCHEMA, DocumentData
from stompkit.replication.model.events import Action, RowChange
from stompkit.replication.model.values import InvalidValueError

__all__ = [
    "DocumentData",
    "DocumentError",
    "DocumentTransaction",
    "Documents",
    "WriteChanges",
    "document_of",
    "members_of",
    "values_of",
]

#: Number of documents read at once.
_PAGE: Final = 1000

#: A collection and an id in it.
Name = tuple[str, str]
#: A function that writes changes and records them with author and comment, in one commit.
WriteChanges = Callable[[Sequence[RowChange], str, str], object]


class DocumentError(ValueError):
    """An invalid document or name; ``str()`` says why."""


class Documents:
    """Reads documents, and writes them in transactions.

    A collection's name is text of 1 to 100 characters, an id of 1 to 255, both without NUL. A
    document is a JSON object with any member names. Anything else raises :class:`DocumentError`
    before a write.
    """

    def __init__(self, data: DocumentData, engine: Engine, write: WriteChanges) -> None:
        """Read from ``data`` with ``engine``, and write all changes with ``write``."""
        self._data = data
        self._engine = engine
        self._write = write

    def get(self, collection: str, id: str) -> dict[str, Any] | None:
        """Return a document; ``None`` if it does not exist."""
        return self.read([_name(collection, id)])[collection, id]

    def read(self, names: Sequence[Name]) -> dict[Name, dict[str, Any] | None]:
        """Return documents by their names; ``None`` for missing ones."""
        found: dict[Name, dict[str, Any] | None] = dict.fromkeys(names)
        with self._engine.connect() as connection:
            found |= self._data.several(connection, names)
        return found

    def find(self, collection: str, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the ids that begin with ``prefix``, in order, each with its document.

        They are read in pages, so concurrent changes may be visible.
        """
        last = None
        while True:
            with self._engine.connect() as connection:
                found = self._data.page(
                    connection, collection, after=last, limit=_PAGE, prefix=prefix
                )
            yield from found
            if len(found) < _PAGE:
                return
            last = found[-1][0]

    def collections(self) -> list[str]:
        """Return the sorted names of the collections that have documents."""
        with self._engine.connect() as connection:
            return [name[len(SCHEMA) + 1 :] for name in self._data.tables(connection)]

    @contextmanager
    def transaction(self, *, author: str = "", comment: str = "") -> Iterator[DocumentTransaction]:
        """Return a transaction: its changes are written at its end, all or none.

        Nothing is written after an exception, or if nothing has changed.
        """
        transaction = DocumentTransaction(self)
        yield transaction
        if changes := transaction.changes():
            transaction.result = self._write(changes, author, comment)

    def put(
        self,
        collection: str,
        id: str,
        document: Mapping[str, Any],
        *,
        author: str = "",
        comment: str = "",
    ) -> None:
        """Insert or replace a document, in a separate transaction."""
        with self.transaction(author=author, comment=comment) as transaction:
            transaction.put(collection, id, document)

    def patch(
        self,
        collection: str,
        id: str,
        members: Mapping[str, Any] | None = None,
        *,
        remove: Iterable[str] = (),
        author: str = "",
        comment: str = "",
    ) -> None:
        """Change and remove members of a document, in a separate transaction."""
        with self.transaction(author=author, comment=comment) as transaction:
            transaction.patch(collection, id, members, remove=remove)

    def delete(self, collection: str, id: str, *, author: str = "", comment: str = "") -> None:
        """Delete a document, in a separate transaction."""
        with self.transaction(author=author, comment=comment) as transaction:
            transaction.delete(collection, id)


class DocumentTransaction:
    """Collects changes of documents; reads see them.

    At the end, a replaced document is compared with its former state.
    """

    def __init__(self, documents: Documents) -> None:
        """Start empty."""
        self._documents = documents
        #: Documents as they were first read here, and as they will be.
        self._before: dict[Name, dict[str, Any] | None] = {}
        self._after: dict[Name, dict[str, Any] | None] = {}
        #: Result of the function that writes the changes, after the end of the transaction.
        self.result: object = None

    def get(self, collection: str, id: str) -> dict[str, Any] | None:
        """Return a document; ``None`` if it does not exist."""
        # A copy, because the program may change it deeply.
        return deepcopy(self._load(collection, id))

    def put(self, collection: str, id: str, document: Mapping[str, Any]) -> None:
        """Insert or replace a document; former members that are missing in it are removed."""
        self._after[_name(collection, id)] = _checked(document)

    def patch(
        self,
        collection: str,
        id: str,
        members: Mapping[str, Any] | None = None,
        *,
        remove: Iterable[str] = (),
    ) -> None:
        """Change and remove members; creates the document if it does not exist."""
        if isinstance(remove, str):
            raise DocumentError("remove is a list of names, not one text")
        changed = _checked(members or {})
        removed = set(remove)
        document = {**(self._load(collection, id) or {}), **changed}
        for name in removed:
            document.pop(name, None)
        self._after[collection, id] = document

    def delete(self, collection: str, id: str) -> None:
        """Delete a document; harmless if it does not exist."""
        self._after[_name(collection, id)] = None

    def changes(self) -> list[RowChange]:
        """Return the changes so far, in the order of first use of the documents."""
        unread = [name for name in self._after if name not in self._before]
        self._before |= self._documents.read(unread)
        found = (_change(*name, self._before[name], after) for name, after in self._after.items())
        return [change for change in found if change is not None]

    def _load(self, collection: str, id: str) -> dict[str, Any] | None:
        name = _name(collection, id)
        if name not in self._after:
            self._before |= self._documents.read([name])
            self._after[name] = self._before[name]
        return self._after[name]


def _name(collection: str, id: str) -> Name:
    """Return the name of a document; raises DocumentError if it is invalid."""
    problem = name_problem("collection", collection) or name_problem("id", id)
    if problem:
        raise DocumentError(problem)
    return collection, id


def _checked(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a document in the form in which it will be read back."""
    if not isinstance(document, Mapping):
        raise DocumentError(f"a document is an object of JSON, not {type(document).__qualname__}")
    try:
        return json_copy(document)
    except (InvalidValueError, UnicodeError, RecursionError) as error:
        raise DocumentError(f"a document cannot be JSON: {error}") from None


def _change(
    collection: str, id: str, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> RowChange | None:
    """Return the change between two states of a document; ``None`` if they are equal."""
    was = None if before is None else values_of(before)
    now = None if after is None else values_of(after)
    action: Action = "delete" if now is None else "write"
    if was is not None and now is not None:
        action = "update"
        # Compared as text, because Python treats True and 1 as equal.
        names = [
            name
            for name in sorted(was.keys() | now.keys())
            if body_of({"": was.get(name)}) != body_of({"": now.get(name)})
        ]
        was = {name: was.get(name) for name in names}
        now = {name: now.get(name) for name in names}
    if not was and not now and (action == "update" or before is after is None):
        return None
    return RowChange(
        table=collection, schema=SCHEMA, action=action, key={"id": id}, before=was, after=now
    )


renamed(
    __name__,
    DocumentProblem="DocumentError",
)
