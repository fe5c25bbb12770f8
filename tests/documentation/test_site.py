"""The documentation as a site: it builds, its links resolve, and its tutorial works."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from configparser import ConfigParser
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docutils import nodes

from tests.documentation.pages import ROOT, rows, section, tree
from tests.documentation.test_docs import sent
from tests.ports import free_ports

TUTORIAL, TROUBLESHOOTING = "docs/tutorial/tutorial.rst", "docs/howto/troubleshooting.rst"
COMPARISON = "docs/explanation/comparison.rst"
PAGES = sorted(
    path.relative_to(ROOT / "docs").with_suffix("").as_posix()
    for path in ROOT.glob("docs/**/*.rst")
)

# The site.


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(folder / "trees"), str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    advice = "a page that is in no toctree goes into docs/index.rst, where it belongs"
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stderr}\n{advice}"
    return folder / "html"


class Links(HTMLParser):
    """Link targets and anchors of a page of the site."""

    def __init__(self, path: Path) -> None:
        """Read the page."""
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links and the id of a tag."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in {("a", "href"), ("img", "src")} and value:
                self.targets.append(value)


@pytest.mark.matrix
def test_every_page_is_in_the_site(site: Path) -> None:
    assert [page for page in PAGES if not (site / f"{page}.html").is_file()] == []


@pytest.mark.matrix
def test_a_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {path: Links(path) for path in site.rglob("*.html") if path.name != "matrix.html"}
    broken = []
    for path, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            where = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not where.exists():
                broken.append(f"{path.name}: {target}")
            elif where in pages and parts.fragment:
                if unquote(parts.fragment) not in pages[where].anchors:
                    broken.append(f"{path.name}: {target}")
    assert broken == []


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("frames", "FrameDecoder"),
        ("client", "Client"),
        ("server", "BrokerFactory"),
        ("testing", "RunningBroker"),
        ("replication", "Changeset"),
        ("spool", "SpoolReader"),
    ],
)
def test_the_reference_has_what_is_public(site: Path, package: str, name: str) -> None:
    anchors = Links(site / "reference" / "api" / f"{package}.html").anchors
    assert f"stompkit.{package}.{name}" in anchors


def test_the_extra_for_the_site_has_what_builds_it() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    assert {"sphinx", "furo"} <= set(re.findall(r"^\w+", extras["docs"], re.MULTILINE))
    assert "docs" in re.split(r"[\[\],]", extras["dev"].split()[0])


# Codes and figures.


def explained() -> dict[str, str]:
    """Return the codes that have a cause and a cure, with these."""
    return {
        term.astext(): definition.astext()
        for item in tree(TROUBLESHOOTING).findall(nodes.definition_list_item)
        for term in item.findall(nodes.term)
        for definition in item.findall(nodes.definition)
        if term.children and isinstance(term.children[0], nodes.literal)
    }


def test_every_code_has_a_cause_and_a_cure_and_no_other() -> None:
    assert set(explained()) == sent()


def test_settings_that_a_cure_names_exist() -> None:
    known = {
        literal.astext()
        for literal in tree("docs/reference/configuration.rst").findall(nodes.literal)
    } | set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", tree("docs/reference/broker.rst").astext()))
    known |= set(
        re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", tree("docs/reference/configuration.rst").astext())
    )
    for text in explained().values():
        for name in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text):
            assert name in known, name


def test_the_comparison_says_what_the_suite_has_found() -> None:
    text = (ROOT / "docs/reference/conformance-results.rst").read_text(encoding="utf-8")
    lines = re.findall(r'^   ("[^"]+", \d{4}-.*)$', text, re.MULTILINE)
    found = {name: others for name, _, *others in csv.reader(lines, skipinitialspace=True)}
    [table] = section(COMPARISON, "conformance").findall(nodes.table)
    compared = [[cell.astext() for cell in row] for row in rows(table)]
    assert len(compared) == 8
    for name, *verdicts in compared:
        assert verdicts == found[name][:4], f"{name}: the results are others now"


#: Cells of the rows of the comparison, and brokers of its columns.
CELLS = {
    "queue 1:1, auto": "queue-1-1-auto",
    "queue 1:1, client-individual": "queue-1-1-ind",
    "queue 16:16, client-individual": "queue-16-16-ind",
    "queue 1:1, the same, 64 KiB": "queue-1-1-ind-64k",
    "queue 1:1, the same, 1 MiB": "queue-1-1-ind-1m",
    "topic 1:100, deliveries": "topic-1-100",
    "persistent, 1 on the way": "persistent-1",
    "persistent, 1,000 on the way": "persistent-1000",
    "connect, SEND, DISCONNECT": "churn",
}
BROKERS = ("stompkit", "activemq:6", "artemis", "rabbitmq:4", "coilmq", "beanstalkd")


def test_the_comparison_says_what_the_benchmarks_have_measured() -> None:
    stored = json.loads((ROOT / "benchmarks/results/brokers.json").read_text(encoding="utf-8"))
    measured = {
        (each["cell"], each["broker"]): each["per_second"]
        for each in stored["results"]
        if not each["fault"]
    }
    table = next(iter(section(COMPARISON, "throughput").findall(nodes.table)))
    compared = {row[0].astext(): [cell.astext() for cell in row[1:]] for row in rows(table)}
    assert set(compared) == set(CELLS)
    for name, figures in compared.items():
        for broker, figure in zip(BROKERS, figures, strict=True):
            exact = measured.get((CELLS[name], broker))
            if exact is None:
                assert figure == "", f"{name}, {broker}: this was not measured"
            else:
                # Rounded to two or more digits.
                shown = float(figure.replace(",", ""))
                assert shown == pytest.approx(exact, rel=0.02, abs=5), f"{name}, {broker}"


# The tutorial.


def blocks() -> Iterator[nodes.literal_block]:
    yield from tree(TUTORIAL).findall(nodes.literal_block)


def script() -> tuple[str, list[str]]:
    """Return the commands of all blocks after the first, which installs, and their output."""
    commands, printed = ["set -eum"], list[str]()
    _, *others = [block for block in blocks() if not block["names"]]
    for block in others:
        if "sh" in block["classes"]:
            commands += [f"echo @@{len(printed)}", block.astext()]
            printed.append("")
        else:
            printed[-1] = block.astext()
    return "\n".join([*commands, ""]), printed


def test_the_tutorial_installs_what_there_is() -> None:
    first = next(blocks()).astext()
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = re.findall(r"stompkit\[([\w,]+)\]", first)[0].split(",")
    assert set(extras) <= set(setup["options.extras_require"])


def test_the_page_about_installation_lists_the_extras_of_users() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    [table] = section("docs/howto/install.rst", "install-from-pypi").findall(nodes.table)
    listed = {extra.astext() for extra, _ in rows(table)}
    assert listed == set(setup["options.extras_require"]) - {"docs", "dev", "fuzz"}


def test_only_the_page_about_installation_explains_how_to_do_without_an_index() -> None:
    """The next release deletes one section, and no page is wrong then."""
    others = {
        page
        for page in (path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*/*.rst"))
        if re.search(r"pip install '?\.", (ROOT / page).read_text(encoding="utf-8"))
    }
    assert "pip install '." not in (ROOT / "README.rst").read_text(encoding="utf-8")
    # The service is installed with files of the repository.
    assert others == {"docs/howto/install.rst", "docs/howto/deployment.rst"}


@pytest.mark.matrix
def test_the_tutorial_works_as_it_says(tmp_path: Path) -> None:
    commands, printed = script()
    places = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(places),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    with free_ports(2) as (stomp, admin):

        def elsewhere(text: str) -> str:
            return text.replace("61613", str(stomp)).replace("15613", str(admin))

        for block in blocks():
            for name in block["names"]:
                (tmp_path / name).write_text(elsewhere(block.astext()) + "\n", encoding="utf-8")
        # What a step that fails leaves running ends with the shell.
        end = "trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n"
        done = subprocess.run(
            ["bash", "-c", end + elsewhere(commands)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    _, *outputs = re.split(r"^@@\d+\n", done.stdout, flags=re.MULTILINE)
    assert len(outputs) == len(printed)
    for output, wanted in zip(outputs, printed, strict=True):
        assert wanted in output, done.stdout
    assert re.search(r"^/queue/orders +3 ", done.stdout, re.MULTILINE)
    assert "pizza 0" in done.stdout
    assert "1 passed" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 0
