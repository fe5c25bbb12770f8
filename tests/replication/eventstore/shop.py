"""A small shop, whose rows the sessions of the tests change."""

from __future__ import annotations

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

__all__ = ["Base", "Item", "Order"]


class Base(DeclarativeBase):
    """The tables."""


class Order(Base):
    """A table with a key of one column."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str | None] = mapped_column(String(50))


class Item(Base):
    """A table with a key of two columns."""

    __tablename__ = "items"
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    note: Mapped[str | None] = mapped_column(String(50))
