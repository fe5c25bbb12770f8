"""All possible mutants of a module, as spans of its source."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

__all__ = ["Defaults", "Span", "defaults_of", "spans"]

#: Parameters with a default in all functions or classes of a name.
Defaults: TypeAlias = Mapping[str, frozenset[str]]

_COMPARED: Final = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
_CALCULATED: Final = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
}
_SWAPPED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGS: Final = frozenset({"_log", "log", "_LOG", "logger", "_logger", "logging", "warnings"})
_TYPING: Final = frozenset({"TypeVar", "ParamSpec", "NewType", "cast", "getLogger", "Logger"})
_LITERAL: Final = re.compile(r"\d+(\.\d+)?")


class Span(NamedTuple):
    """The text that a mutant replaces: positions as lines from 1 and bytes in them."""

    operator: str
    scope: str
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def spans(source: str, defaults: Defaults) -> list[Span]:
    """Return all mutants of a module, without those that change texts, types or logs only."""
    finder = _Finder(source, defaults)
    finder.visit(ast.parse(source))
    return finder.found


def defaults_of(sources: Iterable[str]) -> Defaults:
    """Return the parameters with defaults of everything that is defined in modules."""
    with_default: dict[str, list[frozenset[str]]] = defaultdict(list)
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                with_default[node.name].append(_optional(node.args))
            elif isinstance(node, ast.ClassDef):
                with_default[node.name].append(_of_class(node))
    return {name: frozenset.intersection(*each) for name, each in with_default.items()}


def _optional(arguments: ast.arguments) -> frozenset[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    last = positional[len(positional) - len(arguments.defaults) :]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return frozenset(
        [each.arg for each in last] + [each.arg for each, default in named if default is not None]
    )


def _of_class(node: ast.ClassDef) -> frozenset[str]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return _optional(each.args)
    return frozenset(
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and each.value and isinstance(each.target, ast.Name)
    )


class _Finder(ast.NodeVisitor):
    """Collects spans; nodes that it does not visit have no mutants."""

    def __init__(self, source: str, defaults: Defaults) -> None:
        self.found: list[Span] = []
        self._lines = source.encode().split(b"\n")
        self._defaults = defaults
        self._scope: list[str] = []
        self._function: list[str] = []

    # Positions.

    def _add(self, operator: str, node: ast.expr | ast.stmt, text: str) -> None:
        self._add_span(operator, _start(node), _end(node), text)

    def _add_span(
        self, operator: str, start: tuple[int, int], end: tuple[int, int], text: str
    ) -> None:
        self.found.append(Span(operator, ".".join(self._scope), start, end, text))

    def _text(self, start: tuple[int, int], end: tuple[int, int]) -> str:
        first, last = start[0] - 1, end[0] - 1
        if first == last:
            return self._lines[first][start[1] : end[1]].decode()
        middle = self._lines[first + 1 : last]
        parts = [self._lines[first][start[1] :], *middle, self._lines[last][: end[1]]]
        return b"\n".join(parts).decode()

    def _source(self, node: ast.expr | ast.stmt) -> str:
        return self._text(_start(node), _end(node))

    def _between(self, operator: str, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replace the operator between two operands."""
        start, text = _end(left), self._text(_end(left), _start(right))
        match = re.search(old, text)
        if match is None or "#" in text:
            return
        begin = _moved(start, text[: match.start()])
        self._add_span(operator, begin, _moved(begin, match.group()), new)

    # Nodes without mutants.

    def _leave_out(self, node: ast.AST) -> None:
        """Skip texts and types, and output for people."""

    visit_JoinedStr = visit_Assert = visit_Import = visit_ImportFrom = _leave_out

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit the body only, without decorators and bases."""
        self._scope.append(node.name)
        for each in node.body:
            self.visit(each)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Visit defaults and the body, without decorators and annotations."""
        decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
        if node.name == "__repr__" or decorators & {"overload", "abstractmethod"}:
            return
        self._scope.append(node.name)
        self._function.append(node.name)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for each in node.body:
            self.visit(each)
        self._function.pop()
        self._scope.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    # Statements.

    def visit_If(self, node: ast.If) -> None:
        """Negate the condition, except tests of ``TYPE_CHECKING`` and ``__name__``."""
        test = ast.unparse(node.test)
        if "TYPE_CHECKING" in test or "__name__" in test:
            for each in node.orelse:
                self.visit(each)
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Negate the condition."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Negate conditions."""
        for each in node.ifs:
            self._negate(each)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            self._add("negate condition", test, f"not ({self._source(test)})")

    def visit_Expr(self, node: ast.Expr) -> None:
        """Remove a call."""
        called = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(called, ast.Call) or _is_log(called):
            return
        if self._function:
            self._add("remove call", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Remove an assignment to an attribute or item."""
        if any(isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets):
            return
        lasts = all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets)
        if lasts and self._function and self._function[-1] != "__init__":
            self._add("remove assignment", node, "pass")
        if not _is_typing(node.value):
            self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value only, without the annotation."""
        if node.value is not None and not _is_typing(node.value):
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Remove it, or use another operator."""
        self._add("remove assignment", node, "pass")
        if not _is_text(node.value):
            old, new = _CALCULATED.get(type(node.op), ("", ""))
            if old:
                self._between("arithmetic", node.target, node.value, re.escape(old), new)
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        """Remove it."""
        self._add("remove assignment", node, "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        """Remove it; its arguments have no mutants."""
        if node.exc is None or "NotImplementedError" not in ast.unparse(node.exc):
            self._add("remove raise", node, "pass")

    def visit_Return(self, node: ast.Return) -> None:
        """Return another value."""
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return
        self._add("return value", node, "return None")
        if isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp):
            self._add("return value", value, f"not ({self._source(value)})")
        self.visit(value)

    def visit_Break(self, node: ast.Break) -> None:
        """Replace it by ``continue``."""
        self._add("break or continue", node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        """Replace it by ``break``."""
        self._add("break or continue", node, "break")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """Ignore an exception."""
        if not all(isinstance(each, ast.Pass) for each in node.body):
            self._add_span("handler body", _start(node.body[0]), _end(node.body[-1]), "pass")
        for each in node.body:
            self.visit(each)

    # Expressions.

    def visit_Compare(self, node: ast.Compare) -> None:
        """Replace the comparison."""
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            old, new = _COMPARED[type(operator)]
            self._between("comparison", left, right, old, new)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Replace ``and`` by ``or``."""
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("boolean operator", left, right, rf"\b{old}\b", new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Replace the operator, unless the result is a text or a type."""
        if isinstance(node.op, ast.BitOr) and _is_type(node):
            return
        old, new = _CALCULATED.get(type(node.op), ("", ""))
        if old and not _is_text(node.left) and not _is_text(node.right):
            self._between("arithmetic", node.left, node.right, re.escape(old), new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drop ``not`` or a sign."""
        if isinstance(node.op, ast.Not):
            self._add("negate condition", node, f"({self._source(node.operand)})")
        elif isinstance(node.op, ast.USub):
            self._add("arithmetic", node, self._source(node.operand))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Swap minimum and maximum; drop an argument that has a default."""
        if _is_log(node) or _is_typing(node):
            return
        name = _name(node.func)
        if isinstance(node.func, ast.Name) and name in _SWAPPED:
            self._add("swap function", node.func, _SWAPPED[name])
        optional = self._defaults.get(name, frozenset())
        for each in node.keywords:
            if each.arg in optional:
                self._drop(node, each)
        self.generic_visit(node)

    def _drop(self, call: ast.Call, dropped: ast.keyword) -> None:
        """Drop a keyword argument with its comma after or before it."""
        start, end = (dropped.lineno, dropped.col_offset), _end(dropped.value)
        tail = self._text(end, _end(call))
        ahead = max(
            [_end(call.func), *(_end(each) for each in call.args)]
            + [_end(each.value) for each in call.keywords if _end(each.value) <= start]
        )
        if match := re.match(r"\s*,[ \n]*", tail):
            self._add_span("drop argument", start, _moved(end, match.group()), "")
        elif match := re.fullmatch(r"\s*,\s*", self._text(ahead, start)):
            self._add_span("drop argument", ahead, end, "")
        elif re.fullmatch(r"\(\s*", self._text(ahead, start)):
            self._add_span("drop argument", start, end, "")

    def visit_keyword(self, node: ast.keyword) -> None:
        """Visit the value only, except in output for people."""
        if node.arg not in ("repr", "help", "metavar", "description", "stacklevel"):
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change a number or a boolean."""
        value = node.value
        if isinstance(value, bool):
            self._add("constant", node, str(not value))
        elif isinstance(value, int | float) and _LITERAL.fullmatch(self._source(node)):
            self._add("constant", node, str(value + 1))
            if value:
                self._add("constant", node, str(value - 1))


def _start(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _moved(start: tuple[int, int], text: str) -> tuple[int, int]:
    """Return the position after a text."""
    head, newline, tail = text.rpartition("\n")
    if not newline:
        return start[0], start[1] + len(text.encode())
    return start[0] + head.count("\n") + 1, len(tail.encode())


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_log(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value
    return _name(owner) in _LOGS


def _is_typing(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _name(value.func) in _TYPING


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_type(node: ast.expr) -> bool:
    """Return True if ``|`` may be a union of types, as in ``int | None``."""
    return any(
        (isinstance(each, ast.Constant) and each.value is None)
        or (isinstance(each, ast.Name) and (each.id.istitle() or each.id in _BUILTINS))
        for each in ast.walk(node)
    )


_BUILTINS: Final = frozenset(
    {"int", "str", "bytes", "float", "bool", "list", "dict", "set", "tuple", "frozenset"}
)
