"""Access control: the token, and protection against cross-site requests and DNS rebinding."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from hmac import compare_digest
from typing import Final

from stompkit.server.admin.errors import AdminError, refuse
from stompkit.server.admin.request import HttpRequest
from stompkit.server.admin.roles import AdminTokens, Role
from stompkit.server.listen.origins import host_of, origin_of
from stompkit.server.login.login_limiter import LoginLimiter, Outcome, Verdict
from stompkit.server.settings.endpoint_checks import is_loopback

__all__ = ["HEADERS", "Guard"]

#: Headers of every response.
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


#: Maximum delay in seconds of a refusal after too many wrong tokens.
_MOST_DELAY_S: Final = 1.0


class Guard:
    """Accepts requests, or raises :class:`AdminError`."""

    def __init__(
        self,
        tokens: Callable[[], AdminTokens] | None,
        hosts: Sequence[str],
        login_limiter: LoginLimiter,
        now: Callable[[], float],
    ) -> None:
        """Use the tokens, if there are any, and the allowed host names.

        ``tokens`` returns those that are in force. ``login_limiter`` limits the rate of wrong
        tokens, ``now`` returns the current time.
        """
        self._tokens = tokens
        # A reader's token that cannot be guessed, if there is none.
        self._no_token = secrets.token_bytes()
        self._login_limiter = login_limiter
        self._now = now
        self._hosts = {each.lower().rstrip(".") for each in hosts}

    def check_host(self, request: HttpRequest) -> None:
        """Refuse a host name that could belong to another site (DNS rebinding).

        With a token that site would need to know it. An invalid name is refused in any case.
        """
        header = _header(request, b"host")
        host = host_of(header)
        if self._tokens is not None and (host or not header):
            return
        if host not in self._hosts and not is_loopback(host):
            refuse(
                421,
                "wrong-host",
                "it is not called by this name: add it to hosts in [admin], if it should be",
            )

    def check_token(self, request: HttpRequest) -> Role:
        """Return the role of the sender; refuse a request without the right token.

        A refusal of a wrong token is delayed if many of them arrive from its address.
        """
        if self._tokens is None:
            return Role.OPERATOR
        header = request.getHeader(b"authorization") or b""
        kind, _, token = header.partition(b" ")
        peer = getattr(request.getClientAddress(), "host", "")
        if not header:
            # A missing token is not a guess.
            raise _unauthorised()
        login_limiter, now = self._login_limiter, self._now()
        attempt = login_limiter.attempt(peer, "", header.decode("latin-1"))
        # All are always compared, so that timing reveals nothing.
        right = self._tokens()
        is_operator = compare_digest(token.strip(), right.operator)
        is_reader = compare_digest(token.strip(), right.reader or self._no_token)
        is_right = (is_operator or is_reader) and kind.lower() == b"bearer"
        # A right token is never limited: others at its address could otherwise lock it out. A token
        # is too long to be guessed, and a comparison costs nothing, unlike the check of a passcode.
        if not is_right and login_limiter.judge(attempt, now) is Verdict.REFUSE:
            login_limiter.refused()
            raise _wrong_token(min(login_limiter.wait_s(attempt, now), _MOST_DELAY_S))
        login_limiter.begin(attempt)
        login_limiter.end(attempt, Outcome.RIGHT if is_right else Outcome.WRONG, now)
        if not is_right:
            raise _wrong_token()
        return Role.OPERATOR if is_operator else Role.READER

    def check_change(self, request: HttpRequest, role: Role) -> None:
        """Refuse a change by a reader, or one that a page of another site could trigger."""
        if role is not Role.OPERATOR:
            refuse(403, "read-only", "this token may read, and change nothing")
        content_type = _header(request, b"content-type").partition(";")[0]
        if content_type.strip().lower() != "application/json":
            refuse(415, "wrong-content-type", "it takes content-type: application/json")
        if request.getHeader(b"origin") is not None:
            self._check_origin(request)

    def _check_origin(self, request: HttpRequest) -> None:
        host = _header(request, b"host")
        # A reverse proxy may use TLS with the browser, and not with the broker.
        is_proxied = host_of(host) in self._hosts
        schemes = ("http", "https") if is_proxied else (_scheme(request),)
        try:
            origin = origin_of(_header(request, b"origin"))
            own = [origin_of(f"{scheme}://{host}") for scheme in schemes if host_of(host)]
        except ValueError:
            own = []
        if not own or origin not in own:
            refuse(
                403,
                "wrong-origin",
                "it comes from a page of another site; of a proxy that speaks TLS in front of the"
                " broker, add the name to hosts in [admin]",
            )


def _header(request: HttpRequest, name: bytes) -> str:
    """Return the value of a header, decoded from any bytes; empty if it is missing."""
    return (request.getHeader(name) or b"").decode("utf-8", "replace")


def _unauthorised() -> AdminError:
    what = "the request needs a header Authorization: Bearer TOKEN"
    return AdminError(401, "unauthorised", what)


def _wrong_token(delay_s: float = 0.0) -> AdminError:
    what = (
        "the token is wrong: send Authorization: Bearer TOKEN with the content of token_file or"
        " read_token_file in [admin]"
    )
    return AdminError(401, "unauthorised", what, delay_s=delay_s)


def _scheme(request: HttpRequest) -> str:
    return "https" if request.isSecure() else "http"
