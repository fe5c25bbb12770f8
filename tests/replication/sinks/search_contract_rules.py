"""The requests that the contract accepts: lines of bulk requests, versions, and field values."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "Refused",
    "Stored",
    "actions_of",
    "check_conflict",
    "check_mapping",
    "illegal",
    "object_of",
    "only_these",
]

_LONG: Final = range(2**63 - 1)
_METADATA: Final = {"_index", "_id", "version", "version_type", "if_seq_no", "if_primary_term"}


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, kind: str, reason: str) -> None:
        """Set an HTTP status, and the type of the error."""
        super().__init__(reason)
        self.status = status
        self.error = {"type": kind, "reason": reason}

    @property
    def answer(self) -> dict[str, Any]:
        """Return the documented answer."""
        return {"error": {"root_cause": [self.error], **self.error}, "status": self.status}


def illegal(reason: str) -> Refused:
    """Refuse an invalid request."""
    return Refused(400, "illegal_argument_exception", reason)


@dataclass
class Stored:
    """A document, or the version of a deleted one."""

    source: dict[str, Any] | None
    version: int
    sequence_number: int


def only_these(query: dict[str, str], **known: Iterable[str]) -> None:
    """Refuse unknown parameters of a query."""
    for name, value in query.items():
        if value not in known.get(name, ()):
            raise illegal(f"request contains unrecognized parameter: [{name}={value}]")


def _json(text: bytes) -> Any:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise ValueError("Duplicate field")
        return made

    def constant(name: str) -> Any:
        raise ValueError(f"Non-standard token '{name}'")

    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=members, parse_constant=constant)
    except ValueError as problem:
        raise Refused(400, "x_content_parse_exception", str(problem)) from None


def object_of(body: bytes, *members: str) -> dict[str, Any]:
    """Return the JSON object of a body, with exactly these members if some are named."""
    made = _json(body)
    if not isinstance(made, dict) or (members and set(made) != set(members)):
        raise Refused(400, "parsing_exception", f"Unknown key in {made!r}")
    return made


def actions_of(lines: list[bytes]) -> Iterable[tuple[str, dict[str, Any], Any]]:
    """Return the actions of a bulk request: kind, metadata, and source."""
    left = deque(lines)
    while left:
        number = len(lines) - len(left) + 1
        line = _json(left.popleft())
        if not isinstance(line, dict) or len(line) != 1:
            raise illegal(f"Malformed action/metadata line [{number}]")
        ((kind, told),) = line.items()
        if kind not in ("index", "create", "delete"):
            raise illegal(f"Malformed action/metadata line [{number}], found [{kind}]")
        _check_metadata(number, kind, told)
        source = None
        if kind != "delete":
            if not left:
                raise Refused(400, "action_request_validation_exception", "source is missing")
            source = _json(left.popleft())
            if not isinstance(source, dict):
                raise Refused(400, "parsing_exception", "the source is no object")
        yield kind, told, source


def _check_metadata(number: int, kind: str, told: Any) -> None:
    unknown = set(told) - _METADATA
    if unknown or not {"_index", "_id"} <= set(told):
        raise illegal(f"Action/metadata line [{number}] contains an unknown parameter {unknown}")
    problems = []
    if not told["_id"] or len(told["_id"].encode()) > 512:
        problems.append(f"id [{told['_id']}] is empty, or is too long, longer than 512 bytes")
    if ("if_seq_no" in told) != ("if_primary_term" in told) or (
        "if_seq_no" in told and ("version" in told or kind == "create")
    ):
        problems.append("compare and write operations cannot use versioning")
    if ("version" in told) != (told.get("version_type") in ("external", "external_gte")):
        problems.append("a version of one's own is external")
    if "version" in told and (type(told["version"]) is not int or told["version"] not in _LONG):
        problems.append(f"illegal version value [{told['version']}]")
    if "version" in told and kind == "create":
        problems.append("create operations only support internal versioning")
    if problems:
        raise Refused(400, "action_request_validation_exception", "; ".join(problems))


def check_conflict(kind: str, told: dict[str, Any], stored: Stored | None) -> None:
    """Refuse an action whose version conflicts with the stored one."""
    reason = None
    if "version" in told and stored is not None:
        current, given = stored.version, told["version"]
        if current > given or (current == given and told["version_type"] == "external"):
            reason = f"current version [{current}] is higher than the one provided [{given}]"
    if "if_seq_no" in told:
        wanted = (told["if_seq_no"], told["if_primary_term"])
        if stored is None or stored.source is None or (stored.sequence_number, 1) != wanted:
            reason = f"required seqNo [{wanted[0]}], primary term [{wanted[1]}]"
    if kind == "create" and stored is not None and stored.source is not None:
        reason = "document already exists"
    if reason is not None:
        id = told["_id"]
        reason = f"[{id}]: version conflict, {reason}"
        raise Refused(409, "version_conflict_engine_exception", reason)


def check_mapping(types: dict[str, str], source: dict[str, Any]) -> dict[str, str]:
    """Return the types of fields after another document."""
    new = dict(types)
    for name, value in source.items():
        if not name.strip() or name in ("_id", "_index", "_source", "_version"):
            reason = f"Field [{name}] is a metadata field and cannot be added inside a document"
            raise Refused(400, "mapper_parsing_exception", reason)
        for each in value if isinstance(value, list) else [value]:
            if each is not None and not _fits(new.setdefault(name, _type(each)), each):
                reason = f"failed to parse field [{name}] of type [{new[name]}]"
                raise Refused(400, "mapper_parsing_exception", reason)
    return new


def _type(value: Any) -> str:
    kinds = {bool: "boolean", int: "long", float: "float", str: "text", dict: "object"}
    return kinds[type(value)]


def _fits(kind: str, value: Any) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "boolean":
            return isinstance(value, bool) or value in ("true", "false", "")
        case "long":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return (is_number or _is_numeral(value)) and -(2**63) <= float(value) < 2**63
        case "float":
            return not isinstance(value, (bool, dict)) and _is_numeral(value)
    return not isinstance(value, dict)


def _is_numeral(value: Any) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?(e[-+]?\d+)?", str(value)) is not None
