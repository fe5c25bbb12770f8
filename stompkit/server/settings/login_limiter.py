"""Settings of the login limiter, separate from the code that uses them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["ThrottleSettings"]

Count = Annotated[int, Meta(ge=1)]


class ThrottleSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits for wrong passcodes, and for wrong tokens of the admin HTTP interface.

    Beyond them, logins are refused without a check, with the same ERROR.
    """

    enabled: bool = True
    """``false`` turns the limits off."""
    wrong_passcodes: Count = 10
    """Wrong passcodes from one address; past them it is refused until one of them is forgiven.
    The same wrong passcode of the same user counts once, however often a client repeats it. A
    user who has logged in from an address before has a separate count there."""
    wrong_passcodes_of_user: Count = 100
    """Wrong passcodes for one user, from whatever addresses; past them an address from which
    that user has not logged in before has one try an hour."""
    forgiven_after_s: Annotated[float, Meta(gt=0)] = 60.0
    """Seconds after which one wrong passcode is forgiven, of an address and of a user."""
    exempt: tuple[str, ...] = ()
    """Addresses and networks, ``"10.0.0.0/24"``, that many clients share, as behind a proxy that
    does not say whose connections they are. There only each user has a count, no address."""
    max_remembered: Count = 10_000
    """Addresses that are remembered, and as many users; of more, those that were wrong the
    longest ago are forgotten."""
