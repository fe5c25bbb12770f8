"""Documents: objects of JSON by collection and id, all in one table of the replica's own.

A collection is a table called ``doc.<collection>`` to replication, an id its key, and the members
of a document are its columns, so that replicas can change different members of one document at the
same time. What is inside a member is changed as a whole, and a member that was removed is NULL.

The table has the columns ``collection``, ``id`` and ``body``, which is the document in JSON: what
:meth:`Documents.get` gives, but that an object whose only member begins with ``$`` has its type
around it, as :mod:`stompkit.replication.values` writes it. It is there to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Final

from sqlalchemy import Engine

from stompkit.replica.data._bodies import (
    body_of,
    document_of,
    json_copy,
    members_of,
    name_problem,
    values_of,
)
from stompkit.replica.data._document_table import SCHEMA, DocumentData
from stompkit.replication.events import Action, RowChange
from stompkit.replication.values import ValueProblem

__all__ = [
    "DocumentData",
    "DocumentProblem",
    "DocumentTransaction",
    "Documents",
    "WriteChanges",
    "document_of",
    "members_of",
    "values_of",
]

#: Documents that are read at once.
_PAGE: Final = 1000

#: A collection, and an id in it.
Name = tuple[str, str]
#: Records changes with an author and a comment, writes them, and commits both.
WriteChanges = Callable[[Sequence[RowChange], str, str], object]


class DocumentProblem(ValueError):
    """What can't be a document, or the name of one; ``str()`` says why."""


class Documents:
    """Reads documents, and writes them in transactions.

    A collection's name is text of 1 to 100 characters, an id of 1 to 255, both without NUL; a
    document is an object of JSON whose members may be called anything. What is anything else raises
    :class:`DocumentProblem`, before anything is written.
    """

    def __init__(self, data: DocumentData, engine: Engine, write: WriteChanges) -> None:
        """Read from ``data`` by ``engine``, and have all changes written by ``write``."""
        self._data = data
        self._engine = engine
        self._write = write

    def get(self, collection: str, id: str) -> dict[str, Any] | None:
        """A document; ``None`` where there is none."""
        return self.read([_name(collection, id)])[collection, id]

    def read(self, names: Sequence[Name]) -> dict[Name, dict[str, Any] | None]:
        """Documents by their names; ``None`` for those that are not there."""
        found: dict[Name, dict[str, Any] | None] = dict.fromkeys(names)
        with self._engine.connect() as connection:
            found |= self._data.several(connection, names)
        return found

    def find(self, collection: str, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """Ids that begin with ``prefix``, in order, each with its document.

        They are read some at a time, so that others may come and go meanwhile.
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
        """The names of the collections that have documents, in order."""
        with self._engine.connect() as connection:
            return [name[len(SCHEMA) + 1 :] for name in self._data.tables(connection)]

    @contextmanager
    def transaction(self, *, author: str = "", comment: str = "") -> Iterator[DocumentTransaction]:
        """A transaction: what is changed in it is written at its end, all or nothing.

        Nothing is written where it ends with an exception, and where nothing has changed.
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
        """Put a document there, in a transaction of its own."""
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
        """Change and remove members of a document, in a transaction of its own."""
        with self.transaction(author=author, comment=comment) as transaction:
            transaction.patch(collection, id, members, remove=remove)

    def delete(self, collection: str, id: str, *, author: str = "", comment: str = "") -> None:
        """Delete a document, in a transaction of its own."""
        with self.transaction(author=author, comment=comment) as transaction:
            transaction.delete(collection, id)


class DocumentTransaction:
    """Collects changes of documents; what it reads is as these will have made it.

    A document that is put there is compared with the one before at the end.
    """

    def __init__(self, documents: Documents) -> None:
        """Begin without changes."""
        self._documents = documents
        #: Documents as they were when they were first read here, and as they will be.
        self._before: dict[Name, dict[str, Any] | None] = {}
        self._after: dict[Name, dict[str, Any] | None] = {}
        #: What the writer of the changes has returned, once the transaction has ended.
        self.result: object = None

    def get(self, collection: str, id: str) -> dict[str, Any] | None:
        """A document; ``None`` where there is none."""
        # The program may change it, with all that is inside.
        return deepcopy(self._load(collection, id))

    def put(self, collection: str, id: str, document: Mapping[str, Any]) -> None:
        """Have a document there: members that the one before had beside are removed."""
        self._after[_name(collection, id)] = _checked(document)

    def patch(
        self,
        collection: str,
        id: str,
        members: Mapping[str, Any] | None = None,
        *,
        remove: Iterable[str] = (),
    ) -> None:
        """Change and remove members; where there is no such document it becomes one."""
        if isinstance(remove, str):
            raise DocumentProblem("remove is a list of names, not one text")
        changed = _checked(members or {})
        removed = set(remove)
        document = {**(self._load(collection, id) or {}), **changed}
        for name in removed:
            document.pop(name, None)
        self._after[collection, id] = document

    def delete(self, collection: str, id: str) -> None:
        """Have no such document; harmless if there is none."""
        self._after[_name(collection, id)] = None

    def changes(self) -> list[RowChange]:
        """What the transaction has changed so far, in the order in which that was first used."""
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
    """The name of a document, if it is one."""
    problem = name_problem("collection", collection) or name_problem("id", id)
    if problem:
        raise DocumentProblem(problem)
    return collection, id


def _checked(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a document, as it is when it is read again."""
    if not isinstance(document, Mapping):
        raise DocumentProblem(f"a document is an object of JSON, not {type(document).__qualname__}")
    try:
        return json_copy(document)
    except (ValueProblem, UnicodeError, RecursionError) as error:
        raise DocumentProblem(f"a document can't be JSON: {error}") from None


def _change(
    collection: str, id: str, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> RowChange | None:
    """What makes one document of another; ``None`` where they are the same."""
    was = None if before is None else values_of(before)
    now = None if after is None else values_of(after)
    action: Action = "delete" if now is None else "write"
    if was is not None and now is not None:
        action = "update"
        # As text: a truth value is not the number that Python takes for the same.
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
