"""``stompkit monitoring``."""

from __future__ import annotations

import argparse
from importlib.resources import files
from typing import Final

from stompkit._common.arguments import Parser

__all__ = ["main", "parser"]

#: What can be printed, and the file within the broker's admin package that has it.
_FILES: Final = {"alerts": "alerts.yaml", "dashboard": "dashboard.json"}

_EPILOG: Final = """\
  alerts      alerting rules for Prometheus, for rule_files in prometheus.yml
  dashboard   a dashboard for Grafana, to import there

  stompkit monitoring alerts > /etc/prometheus/stompkit.yaml
  promtool check rules /etc/prometheus/stompkit.yaml
  stompkit monitoring dashboard > stompkit.json

Both use the metrics of the admin interface, at /metrics: `stompkit serve --admin
tcp:15613:interface=127.0.0.1`, or [admin] in the configuration file.

exit status: 0 success; 2 wrong command line
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit monitoring",
        description="Print alerting rules for Prometheus, or a Grafana dashboard.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", metavar="WHAT", choices=tuple(_FILES), help="alerts or dashboard")
    return parser


def main(arguments: list[str]) -> int:
    """Print a file."""
    options = parser().parse_args(arguments)
    folder = files("stompkit.server.admin").joinpath("monitoring")
    print(folder.joinpath(_FILES[options.what]).read_text(encoding="utf-8"), end="")
    return 0
