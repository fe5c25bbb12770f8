"""URLs of PostgreSQL, as SQLAlchemy or libpq writes them."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from stompkit._common.secrets import mask_url

__all__ = ["PostgresUrl", "parsed"]

#: Several hosts in libpq's format: ``HOST:PORT,HOST:PORT``, where SQLAlchemy allows one.
_SEVERAL: Final = re.compile(
    r"(?P<scheme>[^:/]+)://(?P<login>[^/]*@)?(?P<hosts>[^/?@]*,[^/?@]*)(?P<rest>(?:[/?].*)?)"
)
#: A host of these, an IPv6 address in brackets, with its port.
_HOST: Final = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<host>[^:\[\]]*))(?::(?P<port>\d+))?")
_DIALECT: Final = "postgresql+psycopg"
_DEFAULT_PORT: Final = "5432"

_INVALID: Final = (
    "the URL of an SQL store has to be like postgresql://USER:PASSWORD@HOST/DATABASE or"
    " sqlite:////var/lib/stompkit/messages.sqlite"
)


class PostgresUrl(NamedTuple):
    """Parameters of libpq for connections, and the URL as it is given, without its secrets."""

    parameters: dict[str, Any]
    name: str


def parsed(url: str) -> PostgresUrl:
    """Return the parameters in a URL; raises ValueError, which quotes nothing of it.

    Several hosts can be in libpq's format, ``postgresql://one:5432,two:5432/db``, or in that of
    SQLAlchemy, ``postgresql:///db?host=one:5432&host=two:5432``. libpq tries them in this order.
    """
    several = _SEVERAL.fullmatch(url)
    try:
        if several is None:
            found, hosts = make_url(url), {}
        else:
            found = make_url("{scheme}://{login}{rest}".format_map(_texts(several)))
            hosts = _hosts(several["hosts"])
        dialect = found.set(drivername=_DIALECT).get_dialect()
        _, parameters = dialect().create_connect_args(found)
    except (ArgumentError, ValueError, TypeError):
        raise ValueError(_INVALID) from None
    return PostgresUrl({**parameters, **hosts}, mask_url(url))


def _hosts(text: str) -> dict[str, str]:
    """Return libpq's parameters for hosts in its own format; raises ValueError."""
    found = [_HOST.fullmatch(each) for each in text.split(",")]
    if None in found:
        raise ValueError("a host has brackets or a port that cannot be")
    matches = [_texts(each) for each in found if each is not None]
    return {
        "host": ",".join(each["address"] or each["host"] for each in matches),
        "port": ",".join(each["port"] or _DEFAULT_PORT for each in matches),
    }


def _texts(match: re.Match[str]) -> dict[str, str]:
    return {name: text or "" for name, text in match.groupdict().items()}
