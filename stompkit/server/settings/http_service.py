"""The settings of an HTTP or HTTPS service that decides about logins and rights.

They are separate from its client, since importing HTTP takes long and few brokers use it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

__all__ = ["Event", "HttpService", "Seconds"]

Event = Literal["subscribe", "send", "create", "admin"]
Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class HttpService(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An HTTP service that authenticates users and decides about their rights.

    docs/howto/security.rst describes requests and answers.
    """

    url: str
    """URL that questions are posted to."""
    events: tuple[Event, ...] = ("subscribe", "send", "create", "admin")
    """Actions that the service is asked about besides logins; others are decided without it."""
    ca_file: str | None = None
    """A PEM file of authorities, one of which must have signed the certificate of an ``https``
    service; without it those of the machine are trusted."""
    token_file: str | None = None
    """A file with a token, sent as ``Authorization: Bearer``. A changed file is read again."""
    allow_plain_text: bool = False
    """``true`` allows ``http`` to another machine, with passcodes and messages in clear."""
    timeout_s: Annotated[float, Meta(gt=0)] = 5.0
    """Seconds in which the answer has to be there; past them it is a no."""
    max_concurrent: Count = 20
    """Questions under way at a time; others wait, and their time runs."""
    max_answer_bytes: Count = 1024 * 1024
    """Bytes of an answer."""
    max_body_bytes: Annotated[int, Meta(ge=0)] = 256 * 1024
    """Bytes of the longest body of a message that is sent along; of a longer one, the service
    only gets its length."""
    max_age_s: Seconds = 0.0
    """Seconds for which an answer about a destination holds that does not say so itself."""
    max_cached: Count = 10_000
    """Answers that are remembered."""
