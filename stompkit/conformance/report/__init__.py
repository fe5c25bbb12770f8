"""Reports: the results of a run as data, and the files that are written from them."""

from stompkit.conformance.report.report import (
    FORMAT,
    Merged,
    Report,
    TargetInfo,
    check_writable,
    schema,
    to_json,
    write,
)

__all__ = [
    "FORMAT",
    "Merged",
    "Report",
    "TargetInfo",
    "check_writable",
    "schema",
    "to_json",
    "write",
]
