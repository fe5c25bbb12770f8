"""Statements of the documentation are true: codes, defaults, examples and links."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from docutils import nodes

import stompkit
from docs import make_matrix_picture
from stompkit.frames import AFTER_LOGIN, BEFORE_LOGIN, COMMANDS, Frame, FrameDecoder, Limits, Role
from stompkit.server import BrokerConfig
from stompkit.server.operations import Settings, SettingsError, hash_passcode, parse_settings
from stompkit.server.tap import Options
from stompkit.testing.memory import MemoryBroker
from tests.documentation.pages import ROOT, parsed, rows, section, tree
from tests.server.certificates import Authority

PACKAGE = Path(stompkit.__file__).parent
#: The first page of the site has content that only Sphinx understands: test_site.py builds it.
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.rst"), *ROOT.glob("docs/**/*.rst")]
    if path.name != "index.rst" and path.parent.name != "api"
)
#: Options of ``twistd stompkit``, with their dashes.
OPTIONS = {f"--{name.rstrip('=')}" for name in Options().longOpt}
BROKER, PROTOCOL = "docs/reference/broker.rst", "docs/reference/protocol.rst"


class Example(NamedTuple):
    """A block of frames or settings, with its page, section and line."""

    page: str
    section: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        """Return the place of the example, for the id of a test."""
        return f"{self.page}:{self.section}:{self.line}"


def examples(language: str) -> list[Example]:
    return [
        Example(page, section_of(block), block.line or 0, language, block.astext())
        for page in PAGES
        for block in tree(page).findall(nodes.literal_block)
        if language in block["classes"]
    ]


def section_of(node: nodes.Element) -> str:
    parent = node.parent
    while not isinstance(parent, nodes.section):
        assert parent is not None, "an example outside all sections"
        parent = parent.parent
    return str(parent["ids"][0])


def test_an_entrance_has_at_most_twelve_pages() -> None:
    entrances = (ROOT / "docs/index.rst").read_text("utf-8").split(".. toctree::")[1:]
    pages = [re.findall(r"^   ([a-z]+/\S+)$", each, re.MULTILINE) for each in entrances]
    assert len(pages) > 5
    assert [each for each in pages if not 1 <= len(each) <= 12] == []


def literals(node: nodes.Node) -> list[str]:
    return [literal.astext() for literal in node.findall(nodes.literal)]


# The pages themselves.


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_read_without_a_complaint(page: str) -> None:
    _, complaints = parsed(page)
    assert complaints == ""


@pytest.mark.parametrize("page", PAGES)
def test_a_link_leads_to_a_page_and_section_that_exist(page: str) -> None:
    for reference in tree(page).findall(nodes.reference):
        target, _, anchor = str(reference.get("refuri", "")).partition("#")
        if not target or "://" in target:
            continue
        path = (ROOT / page).parent / target
        assert path.exists(), f"{page} links to {target}"
        if anchor:
            other = path.resolve().relative_to(ROOT).as_posix()
            ids = {each for s in tree(other).findall(nodes.section) for each in s["ids"]}
            assert anchor in ids, f"{page} links to {target}#{anchor}"


def test_a_broker_is_started_with_options_that_there_are() -> None:
    """Every command line in the pages uses existing options; shell syntax is ignored."""
    seen = 0
    for page in PAGES:
        for block in tree(page).findall(nodes.literal_block):
            for line in block.astext().replace("\\\n", " ").splitlines():
                command = re.search(
                    r"\b(?:twistd? (?:--nodaemon )?stompkit|stompkit serve)\b([^#>]*)", line
                )
                if command is None or "--help" in command[1]:
                    continue
                words = shlex.split(command[1])
                for word in words:
                    if word.startswith("--"):
                        assert word.partition("=")[0] in OPTIONS, f"{page}: {line.strip()}"
                seen += 1
    assert seen > 5


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_is_named_exists(page: str) -> None:
    for literal in literals(tree(page)):
        if re.fullmatch(r"docs/[a-z/-]+\.rst", literal):
            assert (ROOT / literal).is_file(), f"{page} names {literal}"


# Settings.


@pytest.fixture(scope="module")
def etc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that examples of settings name in ``/etc/stompkit``."""
    folder = tmp_path_factory.mktemp("etc")
    authority = Authority(folder, "ca")
    authority.server().rename(folder / "broker-with-key.pem")
    (folder / "users").write_text("alice:" + hash_passcode("secret") + ":ops\n")
    (folder / "admin-token").write_text("0123456789abcdef0123456789abcdef\n")
    (folder / "admin-reader").write_text("fedcba9876543210fedcba9876543210\n")
    (folder / "users.ini").write_text("[auth]\nalice = secret\n")
    return folder


def settings_of(example: Example, etc: Path) -> Settings:
    """Read an example, together with the first one of its page if it is incomplete."""
    try:
        return parse_settings(at(etc, example), str(example))
    except SettingsError:
        first = next(each for each in examples("toml") if each.page == example.page)
        return parse_settings(at(etc, first), str(example), tomllib.loads(at(etc, example)))


def at(etc: Path, example: Example) -> str:
    return example.text.replace("/etc/stompkit", str(etc))


@pytest.mark.parametrize("example", examples("toml"), ids=str)
def test_an_example_of_settings_can_be_used(example: Example, etc: Path) -> None:
    assert settings_of(example, etc) != Settings()


def test_all_examples_have_one_store() -> None:
    """Steps of several pages are for one installation."""
    stores = [tomllib.loads(each.text).get("store", {}) for each in examples("toml")]
    paths = {each["path"] for each in stores if str(each.get("path", "")).startswith("/var")}
    assert paths == {"/var/lib/stompkit/messages"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.startswith("docs/howto/migration")]
)
def test_a_migration_adds_the_users_of_its_settings(page: str) -> None:
    documents = [tomllib.loads(each.text) for each in examples("toml") if each.page == page]
    named = {
        user
        for document in documents
        for right in document.get("rights", ())
        for user in right.get("users", ())
    }
    for document in documents:
        named |= {
            user for group in document.get("auth", {}).get("groups", {}).values() for user in group
        }
    loops = [
        found[1].split()
        for each in examples("sh")
        if each.page == page
        and (found := re.search(r"for user in (.*); do\s+stompkit passwd", each.text))
    ]
    assert named - {"*"} == {user for users in loops for user in users}


def defaults() -> dict[str, str]:
    """Return the table of limits: the default of each setting, as written there."""
    [table] = section(BROKER, "limits").findall(nodes.table)
    return {name.astext(): value.astext() for name, value, _ in rows(table)}


@pytest.mark.parametrize(("name", "written"), list(defaults().items()))
def test_a_default_in_the_table_of_limits_is_the_default(name: str, written: str) -> None:
    assert float(written.replace(",", "")) == getattr(BrokerConfig(), name)


def test_every_setting_that_bounds_something_is_in_the_table_of_limits() -> None:
    bounds = re.compile(r"max_\w+|window_\w+|\w+_s|prefetch")
    names = {name for name in BrokerConfig.__struct_fields__ if bounds.fullmatch(name)}
    # Settings without a default are shares of others.
    shares = {name for name in names if getattr(BrokerConfig(), name) is None}
    assert set(defaults()) == names - shares
    assert [name for name in shares if name not in section(BROKER, "limits").astext()] == []


def test_the_sizes_of_frames_are_the_defaults() -> None:
    [table] = section(PROTOCOL, "frame-sizes").findall(nodes.table)
    for number, limits in ((1, BEFORE_LOGIN), (2, AFTER_LOGIN)):
        written = {
            row[0].astext(): int(row[number].astext().replace(",", "")) for row in rows(table)
        }
        assert Limits(**written) == limits
        assert set(written) == set(Limits.__slots__)


# Frames.


class Piece(NamedTuple):
    """A frame of an example: its bytes, and the decoded frame."""

    octets: bytes
    frame: Frame


def pieces(text: str) -> Iterator[Piece]:
    *texts, rest = text.split("^@")
    assert not rest.strip(), "a frame without its end"
    for each in texts:
        octets = each.lstrip("\n").encode() + b"\0"
        [frame] = FrameDecoder("1.2").feed(octets)
        yield Piece(octets, frame)


def config_for(example: Example, etc: Path) -> BrokerConfig | None:
    """Return the configuration before an example in its section, or ``None``."""
    before = [
        each
        for each in examples("toml")
        if (each.page, each.section) == (example.page, example.section) and each.line < example.line
    ]
    return settings_of(before[-1], etc).config if before else None


@pytest.mark.parametrize("example", examples("stomp"), ids=str)
def test_an_example_of_frames_is_what_the_broker_does(example: Example, etc: Path) -> None:
    broker = MemoryBroker(config_for(example, etc))
    conversation = list(pieces(example.text))
    begins = conversation[0].frame.command == "CONNECT"
    client = broker.connect() if begins else broker.client("1.2")
    came = [] if begins else client.take()[1:]
    for octets, frame in conversation:
        if COMMANDS[frame.command].sender is Role.CLIENT:
            client.write(octets)
            came += client.take()
        else:
            assert came, f"{frame} did not come"
            assert is_like(came.pop(0), frame)
    assert came == []


def is_like(frame: Frame, written: Frame) -> bool:
    """Return True if a frame matches an example, in which ``...`` stands for anything."""

    def matches(actual: str, pattern: str) -> bool:
        return re.fullmatch(re.escape(pattern).replace(r"\.\.\.", ".+"), actual) is not None

    return (
        frame.command == written.command
        and frame.body == written.body
        and frame.headers.keys() == written.headers.keys()
        and all(matches(frame.headers[name], value) for name, value in written.headers.items())
    )


def spellings() -> Iterator[tuple[str, str, str, str]]:
    """Yield dialect, spelling, our name and remarks of each line of the tables of dialects."""
    for table in section(BROKER, "dialects-of-other-brokers").findall(nodes.table):
        [head] = table.findall(nodes.thead)
        dialect = re.findall(r'dialect = "(\w+)"', head.astext())[0]
        for theirs, ours, remarks in rows(table):
            for spelling in literals(theirs):
                yield dialect, spelling, ours.astext(), remarks.astext()


@pytest.mark.parametrize(("dialect", "spelling", "name", "remarks"), list(spellings()))
def test_a_spelling_of_another_broker_stands_for_what_the_table_says(
    dialect: str, spelling: str, name: str, remarks: str
) -> None:
    broker = MemoryBroker(BrokerConfig().changed(dialect=dialect))
    headers = {"destination": spelling, "id": "0"}
    if "MULTICAST" in remarks:
        headers["subscription-type"] = "MULTICAST"
    client = broker.client()
    client.send("SUBSCRIBE", headers)
    [made] = broker.destinations
    # Temporary destinations have a random part in their names.
    assert re.sub("/[0-9a-f]{32}/", "/", made) == name


# Codes.


def documented() -> list[str]:
    """Return the words in the first column of all tables of codes."""
    return [
        word
        for table in section(PROTOCOL, "error-codes").findall(nodes.table)
        for row in rows(table)
        for word in literals(row[0])
    ]


#: Calls that take a code, with the position of that argument.
TAKE_CODE = {"RefusedError": 1, "refusal": 1, "fail": 1, "__init__": 1, "disconnect_all": 1}
TAKE_CODE["disconnect"] = 2


def codes_in(module: ast.Module) -> Iterator[str]:
    """Yield the codes that a module can send: arguments of those calls, or returned values."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in TAKE_CODE:
                yield from texts(module, node.args[TAKE_CODE[name] :][:1])
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            parts = node.value.elts
            if parts and isinstance(parts[0], ast.JoinedStr):
                yield from texts(module, parts[1:])


def texts(module: ast.Module, expressions: Iterable[ast.expr | None]) -> Iterator[str]:
    """Yield possible values of expressions, also through names to which a module assigns texts."""
    for expression in expressions:
        if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
            yield expression.value
        elif isinstance(expression, ast.IfExp):
            yield from texts(module, [expression.body, expression.orelse])
        elif isinstance(expression, ast.Name):
            for node in ast.walk(module):
                targets = node.targets if isinstance(node, ast.Assign) else []
                if isinstance(node, ast.AnnAssign):
                    targets = [node.target]
                if any(isinstance(t, ast.Name) and t.id == expression.id for t in targets):
                    assert isinstance(node, ast.Assign | ast.AnnAssign)
                    yield from texts(module, [node.value])


def sent() -> set[str]:
    return {
        code
        for layer in ("frames", "server")
        for path in (PACKAGE / layer).rglob("*.py")
        for code in codes_in(ast.parse(path.read_text(encoding="utf-8")))
        if re.fullmatch(r"[a-z]+(-[a-z0-9]+)+|truncated", code)
    }


def test_every_code_that_can_be_sent_is_explained_once_and_no_other() -> None:
    codes = documented()
    assert len(set(codes)) == len(codes)
    assert set(codes) == sent()


def test_every_code_that_a_frame_can_get_is_in_the_tables() -> None:
    named = [
        code
        for paragraph in section(PROTOCOL, "client-frames").findall(nodes.paragraph)
        if paragraph.astext().startswith("Codes")
        for code in literals(paragraph)
    ]
    assert named
    assert set(named) <= set(documented())


# Scenarios.


def test_the_scenarios_of_spring_are_its_tests() -> None:
    path = ROOT / "tests" / "integration" / "test_spring.py"
    module = ast.parse(path.read_text(encoding="utf-8"))
    functions = [each.name for each in module.body if isinstance(each, ast.FunctionDef)]
    [table] = section("docs/howto/spring.rst", "tested-scenarios").findall(nodes.table)
    named = [test.astext() for _, test in rows(table)]
    assert named == [each for each in functions if each.startswith("test_")]


# Pictures.


def test_the_picture_in_the_readme_shows_the_published_results() -> None:
    assert make_matrix_picture.main(["--check"]) == 0


def test_an_old_picture_of_the_results_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "results.rst"
    page.write_text('.. csv-table::\n   :header: Target, OK\n\n   "stompkit 0.1.0", 1\n\nEnd\n')
    monkeypatch.setattr(make_matrix_picture, "_PAGE", page)
    assert make_matrix_picture.totals() == '"stompkit 0.1.0", 1'
    assert make_matrix_picture.main(["--check"]) == 1
    assert "is older than the results" in capsys.readouterr().out
