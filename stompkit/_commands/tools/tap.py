"""``stompkit tap``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from stompkit._commands.shared.admin import Admin, add_admin_options, admin_parser, on_admin
from stompkit._commands.tools.addresses import broker_address, listen_address
from stompkit._common.files import reason_of

__all__ = ["main", "parser"]

_EPILOG: Final = """\
With --to, the command relays connections to any broker, like `stompkit proxy`. The first line is
the address for clients, and each frame follows on a line. With --admin, a stompkit broker reports
the frames of all its connections, so clients need no change; only the sizes of bodies are shown.

  stompkit tap --to mq.example:61613 --listen 127.0.0.1:61614
  stompkit tap --to localhost:61613 --command SEND --command MESSAGE --destination /queue/orders
  stompkit tap --admin localhost:15613 --direction sent --json

  < SEND       from a client: --direction received
  > MESSAGE    to a client: --direction sent

The broker's log of frames uses the same signs.

Passcodes are masked. Bodies are truncated to --body bytes; binary bodies are shown in hexadecimal.
The command runs until SIGINT (Ctrl-C) or SIGTERM.

{admin}
exit status: 0 ended by a signal; 1 cannot listen, or the admin interface refused the request or is
unreachable; 2 wrong command line
"""

_BODY: Final = 120


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser("tap", "Show the frames between clients and a broker.", _EPILOG)
    add = parser.add_argument
    add(
        "--to",
        "--mq",
        dest="to",
        type=broker_address,
        metavar="HOST:PORT",
        help="relay connections to the broker at this address",
    )
    add(
        "--listen",
        type=listen_address,
        default=("127.0.0.1", 0),
        metavar="HOST:PORT",
        help="with --to: address for clients (default: a free port of 127.0.0.1)",
    )
    add(
        "--command",
        dest="commands",
        action="append",
        type=str.upper,
        metavar="NAME",
        help="show only frames of this command; repeatable",
    )
    add(
        "--destination",
        metavar="NAME",
        help="show only frames with this destination; NAME* matches a prefix",
    )
    add(
        "--direction",
        choices=("received", "sent"),
        help="show only frames received or sent by the broker",
    )
    add(
        "--body",
        type=_size,
        default=_BODY,
        metavar="N",
        help="maximum bytes of a body to show (default: 120)",
    )
    add(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="use colours (default: auto)",
    )
    add("--json", action="store_true", help="print each frame as a JSON object")
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Watch frames until a signal."""
    made = parser()
    options = made.parse_args(arguments)
    if options.to is not None and options.admin is not None:
        made.error("--to is for any broker, --admin for a stompkit one: say one of them")
    from stompkit._commands.tools.tapping import FrameLines, tap_admin, tap_proxy

    lines = FrameLines(options)
    if options.to is None:

        def watch(admin: Admin) -> int:
            return tap_admin(admin, lines)

        return on_admin("tap", options, watch)
    try:
        return tap_proxy(options.to, options.listen, lines)
    except BrokenPipeError:
        raise  # handled alike for all commands
    except OSError as error:
        print(f"stompkit tap: {reason_of(error)}", file=sys.stderr)
        return 1


def _size(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes")
    return int(text)
