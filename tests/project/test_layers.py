"""The order of the layers: imports point only downwards, and only to public names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import stompkit
import stompkit.testing
from stompkit._commands import COMMANDS, command_of

PACKAGE = Path(stompkit.__file__).parent

#: Layers that each layer may import; all others are above it.
BELOW = {
    "frames": set[str](),
    "_common": set[str](),
    "metrics": {"_common"},
    "client": {"_common", "frames"},
    "kombu": {"_common", "frames"},
    "server": {"_common", "frames"},
    "replication": {"_common", "frames", "client"},
    "replica": {"_common", "frames", "client", "replication"},
    "spool": {"_common", "frames", "client"},
    "bridge": {"_common", "frames", "client", "spool"},
    "spark": {"_common", "frames", "client", "spool", "replication"},
    "testing": {"_common", "frames"},
    # The in-memory broker, and the code of launched processes, are brokers themselves.
    "testing/memory": {"_common", "frames", "testing", "server"},
    "testing/server": {"_common", "frames", "testing", "server"},
    "conformance": {"_common", "frames", "testing"},
    "_commands": {
        "_common",
        "frames",
        "client",
        "server",
        "replication",
        "replica",
        "spool",
        "bridge",
        "spark",
        "testing",
        "conformance",
    },
}
#: The module that an import of any part of the package runs first; it imports nothing itself.
GROUND = "_pure"
#: Modules imported where Twisted already runs; pytest imports all others.
ON_TWISTED = ("testing/memory/", "testing/server/", "testing/twisted.py")
#: Modules that read the names of quirks, in a function and only if quirks are given. This imports
#: Twisted, but makes no reactor.
ONLY_WHERE_GIVEN = {"testing/_settings.py": "stompkit.testing.server.quirks"}
#: Public modules of layers whose folders have names without an underscore.
FACES = {
    "client": {"stompkit.client", "stompkit.client.aio", "stompkit.client.blocking"},
    "conformance": {"stompkit.conformance", "stompkit.conformance.__main__"},
    "server": {
        "stompkit.server",
        "stompkit.server.inspection",
        "stompkit.server.interfaces",
        "stompkit.server.operations",
        "stompkit.server.tap",
        "stompkit.server.websocket",
    },
    "testing": {
        "stompkit.testing",
        "stompkit.testing.client",
        "stompkit.testing.memory",
        "stompkit.testing.plugin",
        "stompkit.testing.proxy",
        "stompkit.testing.strategies",
        "stompkit.testing.transcripts",
        "stompkit.testing.tunnel",
    },
    "spark": {
        "stompkit.spark",
        "stompkit.spark.apply",
        "stompkit.spark.eventstore",
        "stompkit.spark.fence",
        "stompkit.spark.jobs",
        "stompkit.spark.jobs.analytics",
        "stompkit.spark.jobs.compact",
        "stompkit.spark.jobs.events",
        "stompkit.spark.jobs.rebuild",
        "stompkit.spark.jobs.replicate",
        "stompkit.spark.jobs.running",
        "stompkit.spark.jobs.settings",
        "stompkit.spark.jobs.status",
        "stompkit.spark.jobs.verify",
        "stompkit.spark.metrics",
        "stompkit.spark.session",
        "stompkit.spark.ship",
        "stompkit.spark.targets",
    },
}
#: Words that open a docstring which does not name its subject.
RIDDLES = frozenset("Have How Let That What Where Whether Which Who Whoever Whom Whose So".split())
#: Maximum number of words in a sentence of a docstring.
MOST_WORDS = 30
#: Maximum number of lines of a module.
MOST_LINES = 400
#: Maximum number of modules in a folder.
MOST_MODULES = 20

MODULES = sorted(
    {
        path.relative_to(PACKAGE).as_posix()
        for layer in BELOW
        for path in (PACKAGE / layer).rglob("*.py")
        if "cases" not in path.parts
    }
)


#: Folders with modules.
FOLDERS = sorted({module.rpartition("/")[0] for module in MODULES})


class Docstring(NamedTuple):
    """A docstring of a module, class, function or attribute."""

    line: int
    text: str


@dataclass
class Facts:
    """What a module has, as far as these tests look at it."""

    lines: int
    imports: set[str]
    """Absolute names of imported modules."""
    members: set[str]
    """The same; where a name of a package is imported, with that name."""
    docstrings: list[Docstring]
    errors: dict[str, bool]
    """Classes, and whether the base of each is an exception by its name; warnings are none."""


@cache
def facts(module: str) -> Facts:
    """Return the facts about a module: its tree is large, and is not kept."""
    text = (PACKAGE / module).read_text(encoding="utf-8")
    found = Facts(len(text.splitlines()), set(), set(), [], {})
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.imports.update(alias.name for alias in node.names)
            found.members.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found.imports.add(node.module or "")
            found.members.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base).split(".")[-1] for base in node.bases]
            found.errors[node.name] = any(
                base == "Exception" or base.endswith("Error") for base in bases
            )
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.docstrings += _docstrings(node.body)
    return found


def _docstrings(body: Iterable[ast.stmt]) -> Iterator[Docstring]:
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str) and text.strip():
                yield Docstring(node.lineno, text)


def modules(folder: str) -> Iterator[tuple[str, Facts]]:
    """Yield the modules of a folder, without those of its folders, and facts about each."""
    for module in MODULES:
        if module.rpartition("/")[0] == folder:
            yield module, facts(module)


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_downwards(folder: str) -> None:
    own = max((layer for layer in BELOW if f"{folder}/".startswith(f"{layer}/")), key=len)
    allowed = BELOW[own] | {own, GROUND}
    for module, found in modules(folder):
        for name in found.imports:
            if name.startswith("stompkit."):
                layer = name.split(".")[1]
                assert layer in allowed, f"{module} imports {name}, which is not below it"


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_of_other_layers_name_public_modules(folder: str) -> None:
    own = folder.partition("/")[0]
    # Shared private modules are for all layers, but not for users.
    shared = ("__main__", "_common", GROUND)
    for module, found in modules(folder):
        for name in found.imports:
            parts = name.split(".")
            if parts[0] == "stompkit" and len(parts) > 1 and parts[1] != own:
                private = [part for part in parts if part.startswith("_") and part not in shared]
                assert not private, f"{module} imports {name}"
                assert name in FACES.get(parts[1], {name}), f"{module} imports {name}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_private_modules_are_imported_in_their_own_package_only(folder: str) -> None:
    package = _name(f"{folder}/__init__.py")
    for module, _ in modules(folder):
        for name in _imported(module):
            owner = re.split(r"\._(?!_)", name)[0]
            assert owner == name or f"{package}.".startswith(f"{owner}."), (
                f"{module} imports {name}"
            )


def test_nobody_imports_from_a_command() -> None:
    commands = {command_of(name).main.__module__ for name in COMMANDS}
    for module in MODULES:
        if module.startswith("_commands/"):
            assert not facts(module).imports & commands, module


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types alone count, too."""
    graph = {_name(module): _imported(module) for module in MODULES}
    unfinished: dict[str, set[str]] = {
        name: targets & graph.keys() for name, targets in graph.items()
    }
    # A module without remaining imports is in no cycle.
    while free := {name for name, targets in unfinished.items() if not targets}:
        unfinished = {
            name: targets - free for name, targets in unfinished.items() if name not in free
        }
    # A module that no remaining module imports only leads to a cycle.
    while idle := unfinished.keys() - {each for found in unfinished.values() for each in found}:
        unfinished = {name: found for name, found in unfinished.items() if name not in idle}
    assert sorted(unfinished) == []


def _name(module: str) -> str:
    return "stompkit." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


NAMES = frozenset(map(_name, MODULES))


def _imported(module: str) -> set[str]:
    """Return the other modules that a module imports; names of a package are its modules."""
    found = facts(module)
    inner = found.members & NAMES
    packages = {name for name in found.imports if _has_more(name, found.members - inner)}
    return (inner | (packages & NAMES)) - {_name(module)}


def _has_more(package: str, members: set[str]) -> bool:
    """Return True if a module imports more of a package than modules of it, or itself."""
    return any(each == package or each.rpartition(".")[0] == package for each in members)


@pytest.mark.parametrize(
    "folder",
    [
        *("_commands", "_common", "bridge", "conformance", "frames", "kombu", "replica"),
        *("replication", "server", "spark", "spool", "testing"),
    ],
)
def test_no_folder_has_too_many_modules(folder: str) -> None:
    folders = {path.parent for path in (PACKAGE / folder).rglob("*.py")}
    for each in folders:
        names = [path.name for path in each.glob("*.py") if path.name != "__init__.py"]
        assert len(names) <= MOST_MODULES, each


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_module_is_too_long(folder: str) -> None:
    too_long = {
        module: found.lines for module, found in modules(folder) if found.lines > MOST_LINES
    }
    assert too_long == {}


def test_frames_imports_only_the_standard_library() -> None:
    for module in MODULES:
        if module.startswith("frames/"):
            tops = {name.partition(".")[0] for name in facts(module).imports}
            assert tops - {"stompkit"} <= sys.stdlib_module_names, module


def test_what_pytest_imports_of_the_harness_needs_no_twisted() -> None:
    for module in MODULES:
        if not module.startswith("testing/") or module.startswith(ON_TWISTED):
            continue
        for name in facts(module).imports:
            assert name.partition(".")[0] not in ("twisted", "zope"), f"{module} imports {name}"
            if name != ONLY_WHERE_GIVEN.get(module):
                assert not name.startswith("stompkit.testing.server"), f"{module} imports {name}"


@pytest.mark.parametrize("layer", [each for each in BELOW if each[0] != "_" and "/" not in each])
def test_public_names_are_listed(layer: str) -> None:
    tree = ast.parse((PACKAGE / layer / "__init__.py").read_text(encoding="utf-8"))
    assigned = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    # For lazy imports, a table lists the module of each name.
    listed = [name for name in assigned if name not in ("_MODULES", "_PLACES")]
    assert listed == ["__all__"], f"stompkit.{layer} does more than import and list names"


def test_each_name_of_the_harness_is_there() -> None:
    for name in stompkit.testing.__all__:
        assert getattr(stompkit.testing, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        stompkit.testing.nothing  # noqa: B018 (to look is to import)


def test_looking_at_quirks_makes_no_reactor() -> None:
    program = f"""import sys, {ONLY_WHERE_GIVEN["testing/_settings.py"]}
print("twisted.internet.reactor" in sys.modules)"""
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert run.stdout == "False\n"


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_open_with_a_verb_or_a_noun(folder: str) -> None:
    opened = [
        (module, line, text.split()[0].strip(".,:;"))
        for module, found in modules(folder)
        for line, text in found.docstrings
    ]
    assert [each for each in opened if each[-1] in RIDDLES] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_sentence_of_a_docstring_is_long(folder: str) -> None:
    sentences = [
        (module, line, sentence)
        for module, found in modules(folder)
        for line, text in found.docstrings
        for sentence in _sentences(text)
    ]
    words = re.compile(r"\S*\w\S*")
    assert [each for each in sentences if len(words.findall(each[-1])) > MOST_WORDS] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_exceptions_end_in_error(folder: str) -> None:
    wrong = [
        (module, name)
        for module, found in modules(folder)
        for name, is_error in found.errors.items()
        if is_error != name.endswith("Error")
    ]
    assert wrong == []


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring, but not those of tables, lists of terms and programs."""
    for paragraph in re.split(r"\n\s*\n|\n\s*[*-] ", text):
        if not re.search(r"\S {3,}\S|={4}|::$|\n {8}\S", paragraph):
            yield from re.split(r"(?<=[.:;!?])\s", " ".join(paragraph.split()))
