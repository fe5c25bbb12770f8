"""Check the settings of the beanstalkd front end, whose clients have no login."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.names import Kind, Pattern
from stompkit.server.settings.endpoint_checks import check_endpoint, is_local
from stompkit.server.settings.toml import Document

if TYPE_CHECKING:
    from stompkit.server.settings.process import Settings

__all__ = ["check_beanstalk"]


def check_beanstalk(settings: Settings, document: Document) -> None:
    """Add all problems to the document."""
    beanstalk, table = settings.beanstalk, "beanstalk"
    for number, description in enumerate(beanstalk.endpoints, 1):
        try:
            check_endpoint(description)
        except ValueError as error:
            document.add((table, "endpoints"), f"item {number}: {error}")
            continue
        if not (beanstalk.allow_remote or is_local(description)):
            document.add(
                (table, "endpoints"),
                f"item {number}: {description} can be reached from other machines, and clients of"
                " beanstalkd have no login: add :interface=127.0.0.1, or allow_remote = true to"
                " [beanstalk] if that is meant",
            )
    for name in beanstalk.tubes:
        try:
            Pattern(Kind.QUEUE.value + name)
        except RefusedError as refused:
            document.add((table, "tubes"), refused.message)
    if (
        beanstalk.endpoints
        and not beanstalk.tubes
        and (settings.rights or settings.auth.is_checked)
    ):
        document.add(
            (table, "endpoints"),
            "clients of beanstalkd have no login, and no right is asked for what they do: list the"
            ' tubes that they may use, tubes = ["jobs.>"], say',
        )
