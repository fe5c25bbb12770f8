"""Who may ask: the token, and what keeps pages of other sites from asking in a browser's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hmac import compare_digest
from typing import Final

from stompkit.server.admin._problems import Problem, refuse
from stompkit.server.admin._request import HttpRequest
from stompkit.server.listen.origins import host_of, origin_of
from stompkit.server.login.login_limiter import LoginLimiter, Outcome, Verdict
from stompkit.server.settings.endpoint_checks import is_loopback

__all__ = ["HEADERS", "Guard"]

#: What every answer says.
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


#: Seconds that a refusal comes late, where tokens were wrong too often.
_MOST_DELAY_S: Final = 1.0


class Guard:
    """Lets requests pass, or raises :class:`Problem`."""

    def __init__(
        self,
        token: bytes | None,
        hosts: Sequence[str],
        throttle: LoginLimiter,
        now: Callable[[], float],
    ) -> None:
        """Take the token, if there is one, and names to be called by.

        ``throttle`` says how often a token may be wrong, ``now`` what time it is.
        """
        self._token = token
        self._throttle = throttle
        self._now = now
        self._hosts = {each.lower().rstrip(".") for each in hosts}

    def check_host(self, request: HttpRequest) -> None:
        """Refuse a name that could be that of another site, which leads here by a trick of DNS.

        With a token that site would have to know it; but what is no name is refused all the same.
        """
        said = _said(request, b"host")
        host = host_of(said)
        if self._token is not None and (host or not said):
            return
        if host not in self._hosts and not is_loopback(host):
            refuse(
                421,
                "wrong-host",
                "it is not called by this name: add it to hosts in [admin], if it should be",
            )

    def check_token(self, request: HttpRequest) -> None:
        """Refuse who does not know the token."""
        if self._token is None:
            return
        said = request.getHeader(b"authorization") or b""
        kind, _, token = said.partition(b" ")
        peer = getattr(request.getClientAddress(), "host", "")
        if not said:
            # Nothing is guessed.
            raise _unauthorised()
        throttle, now = self._throttle, self._now()
        attempt = throttle.attempt(peer, "", said.decode("latin-1"))
        if throttle.judge(attempt, now) is Verdict.REFUSE:
            throttle.refused()
            raise _unauthorised(min(throttle.wait_s(attempt, now), _MOST_DELAY_S))
        throttle.begin(attempt)
        # Both are compared in any case, so that time tells nothing.
        is_right = compare_digest(token.strip(), self._token)
        is_right = is_right and kind.lower() == b"bearer"
        throttle.end(attempt, Outcome.RIGHT if is_right else Outcome.WRONG, now)
        if not is_right:
            raise _unauthorised()

    def check_change(self, request: HttpRequest) -> None:
        """Refuse what a page of another site could have a browser send."""
        content_type = _said(request, b"content-type").partition(";")[0]
        if content_type.strip().lower() != "application/json":
            refuse(415, "wrong-content-type", "it takes content-type: application/json")
        if request.getHeader(b"origin") is not None:
            self._check_origin(request)

    def _check_origin(self, request: HttpRequest) -> None:
        host = _said(request, b"host")
        # A proxy in front may speak TLS with the browser, and not with the broker.
        is_proxied = host_of(host) in self._hosts
        schemes = ("http", "https") if is_proxied else (_scheme(request),)
        try:
            origin = origin_of(_said(request, b"origin"))
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


def _said(request: HttpRequest, name: bytes) -> str:
    """The value of a header, whatever its octets; empty for one that is not there."""
    return (request.getHeader(name) or b"").decode("utf-8", "replace")


def _unauthorised(delay_s: float = 0.0) -> Problem:
    what = "it takes a header Authorization: Bearer TOKEN"
    return Problem(401, "unauthorised", what, delay_s=delay_s)


def _scheme(request: HttpRequest) -> str:
    return "https" if request.isSecure() else "http"
