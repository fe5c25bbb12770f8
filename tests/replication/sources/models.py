"""Tables with all features of an ORM."""

from __future__ import annotations

import enum
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import (
    JSON,
    Column,
    Computed,
    Dialect,
    ForeignKey,
    Integer,
    Interval,
    LargeBinary,
    Numeric,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    deferred,
    mapped_column,
    relationship,
)
from sqlalchemy.types import DateTime, PickleType, TypeDecorator

__all__ = [
    "BOOK_TAGS",
    "Animal",
    "Author",
    "Base",
    "Book",
    "Cat",
    "Colour",
    "Employee",
    "Generated",
    "Keyless",
    "Manager",
    "Node",
    "Pair",
    "Tag",
    "TextKey",
    "Typed",
]

_DATETIME = DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


class Base(DeclarativeBase):
    """All tables."""


class Author(Base):
    """A row whose attributes and columns have different names."""

    __tablename__ = "authors"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column("author_name", String(50))
    rank: Mapped[int | None]
    books: Mapped[list[Book]] = relationship(back_populates="author")


BOOK_TAGS = Table(
    "book_tags",
    Base.metadata,
    Column("book_id", ForeignKey("books.id"), primary_key=True),
    Column("tag_id", ForeignKey("tags.id"), primary_key=True),
)


class Book(Base):
    """A row that refers to another table, and to many rows of a third."""

    __tablename__ = "books"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(String(50), unique=True)
    notes: Mapped[str | None] = deferred(mapped_column(Text))
    author_id: Mapped[int | None] = mapped_column(ForeignKey("authors.id"))
    author: Mapped[Author | None] = relationship(back_populates="books")
    tags: Mapped[list[Tag]] = relationship(secondary=BOOK_TAGS)


class Tag(Base):
    """A row with a key and a word only."""

    __tablename__ = "tags"

    id: Mapped[int] = mapped_column(primary_key=True)
    word: Mapped[str] = mapped_column(String(50))


class TextKey(Base):
    """A key that is text."""

    __tablename__ = "text_keys"

    key: Mapped[str] = mapped_column("k", String(50), primary_key=True)
    value: Mapped[int | None]


class Pair(Base):
    """A key of two columns, in another order than the columns."""

    __tablename__ = "pairs"

    value: Mapped[str | None] = mapped_column(String(50))
    second: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    first: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Employee(Base):
    """The base of an inheritance over two tables."""

    __tablename__ = "employees"

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    name: Mapped[str] = mapped_column(String(50))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "employee"}  # noqa: RUF012


class Manager(Employee):
    """Stored in two tables."""

    __tablename__ = "managers"

    id: Mapped[int] = mapped_column(ForeignKey("employees.id"), primary_key=True)
    staff: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": "manager"}  # noqa: RUF012


class Animal(Base):
    """The base of an inheritance inside of one table."""

    __tablename__ = "animals"

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    name: Mapped[str] = mapped_column(String(50))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}  # noqa: RUF012


class Cat(Animal):
    """An animal with a column that is null for others."""

    lives: Mapped[int | None]
    __mapper_args__ = {"polymorphic_identity": "cat"}  # noqa: RUF012


class Node(Base):
    """Rows that refer to each other, so that one has to be written twice."""

    __tablename__ = "nodes"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    next_id: Mapped[int | None] = mapped_column(ForeignKey("nodes.id"))
    next: Mapped[Node | None] = relationship(remote_side=[id], post_update=True)


class Generated(Base):
    """A row with columns that the database fills."""

    __tablename__ = "generated"

    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int] = mapped_column(server_default=text("7"))
    double: Mapped[int] = mapped_column(Computed("amount * 2", persisted=True))
    note: Mapped[str | None] = mapped_column(String(50), default="made by Python")


class Colour(enum.Enum):
    """An enumeration stored by its names."""

    RED = "r"
    GREEN = "g"


class Reversed(TypeDecorator[str]):
    """Text that is stored backwards."""

    impl = String(50)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Reverse it."""
        return None if value is None else value[::-1]

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Reverse it again."""
        return None if value is None else value[::-1]


class Typed(Base):
    """A column of each type."""

    __tablename__ = "typed"

    id: Mapped[int] = mapped_column(primary_key=True)
    truth: Mapped[bool | None]
    number: Mapped[int | None] = mapped_column(Integer)
    amount: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
    ratio: Mapped[float | None]
    words: Mapped[str | None] = mapped_column(String(50))
    octets: Mapped[bytes | None] = mapped_column(LargeBinary)
    day: Mapped[date | None]
    hour: Mapped[time | None]
    moment: Mapped[datetime | None] = mapped_column(_DATETIME)
    period: Mapped[timedelta | None] = mapped_column(Interval(second_precision=6))
    uuid: Mapped[UUID | None]
    document: Mapped[Any] = mapped_column(JSON(none_as_null=True), nullable=True)
    colour: Mapped[Colour | None]
    reversed: Mapped[str | None] = mapped_column(Reversed)
    pickled: Mapped[Any] = mapped_column(PickleType, nullable=True)


class Keyless(Base):
    """A table whose key only the program knows."""

    __table__ = Table(
        "keyless",
        Base.metadata,
        Column("name", String(50)),
        Column("value", Integer),
        UniqueConstraint("name"),
    )
    __mapper_args__ = {"primary_key": [__table__.c.name]}  # noqa: RUF012
