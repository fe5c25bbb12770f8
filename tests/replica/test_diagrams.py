"""Diagrams of history and of topology."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from stompkit.replica.diagrams import (
    Hearing,
    Topology,
    TopologyNode,
    history_dot,
    history_svg,
    topology_dot,
    topology_of,
    topology_svg,
)
from stompkit.replica.engine import PeerStatus, Status
from stompkit.replica.history import Counts, Edge, Entry, Graph, GraphNode
from tests.replica.branches import Branch, Wall, note

SVG = "{http://www.w3.org/2000/svg}"
NOW = 1_800_000_000.0
#: Text that must not become markup or break its container.
HOSTILE = '</title><script>alert("1")</script> &amp; \\N "quoted" \\'

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_WORD = rf"(?:{_STRING}|[A-Za-z0-9_.]+)"
_ATTRIBUTES = rf"\[{_WORD}={_WORD}(?:, {_WORD}={_WORD})*\]"
#: The used subset of Graphviz's language.
_STATEMENT = re.compile(rf"    {_WORD}(?: -> {_WORD})?(?: {_ATTRIBUTES})?;")


def parsed(svg: str) -> Element:
    """Return a diagram after checks that hold for every one."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert title.text
    assert description.text
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    style = root.find(f"{SVG}style")
    assert style is not None
    assert "@media(prefers-color-scheme:dark)" in (style.text or "")
    known = set(re.findall(r"\.(sk[a-z0-9-]*)", style.text or ""))
    width, height = (float(root.get(name) or 0) for name in ("width", "height"))
    for element in root.iter():
        assert element.tag.removeprefix(SVG) != "script"
        assert set((element.get("class") or "").split()) <= known
        if element.tag == f"{SVG}text" and element.get("text-anchor") is None:
            # At least half an em for each character.
            end = float(element.get("x") or 0) + 6 * len(element.text or "")
            assert 0 <= end <= width, element.text
            assert 0 <= float(element.get("y") or 0) <= height
    return root


def words(root: Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def tooltips(root: Element) -> list[str]:
    return [group.findtext(f"{SVG}title") or "" for group in root.iter(f"{SVG}g")]


def statements(dot: str) -> list[str]:
    """Return the statements of a graph, after checking each."""
    first, *inside, last = dot.splitlines()
    assert re.fullmatch(r"digraph \w+ \{", first)
    assert last == "}"
    for line in inside:
        assert _STATEMENT.fullmatch(line), line
    return [line.strip() for line in inside]


def id_of(origin: str, sequence: int) -> str:
    return sha256(f"{origin}:{sequence}".encode()).hexdigest()


def entry(origin: str, sequence: int, *parents: tuple[str, int], **more: Any) -> Entry:
    return Entry(
        origin=origin,
        sequence=sequence,
        id=id_of(origin, sequence),
        time=datetime.fromtimestamp(NOW + sequence, UTC),
        hlc=sequence,
        parents=tuple(id_of(*each) for each in parents),
        **more,
    )


def graph(*nodes: GraphNode, is_cut: bool = False) -> Graph:
    known = {node.entry.id for node in nodes}
    return Graph(
        nodes=nodes,
        edges=tuple(
            Edge(parent, node.entry.id)
            for node in nodes
            for parent in node.entry.parents
            if parent in known
        ),
        origins=tuple(dict.fromkeys(node.entry.origin for node in nodes)),
        is_cut=is_cut,
    )


# History.

A, B = "a~00000001", "b~00000001"


@pytest.fixture
def merge() -> Graph:
    """Return two concurrent changesets after one, and one after both."""
    return graph(
        GraphNode(entry=entry(A, 1, author="Ann", comment="begin")),
        GraphNode(entry=entry(A, 2, (A, 1)), conflicts=2),
        GraphNode(
            entry=entry(B, 1, (A, 1), via=B, tables={"notes": Counts(1, 2, 3)}, changes=6),
            conflicts=1,
        ),
        GraphNode(entry=entry(B, 2, (A, 2), (B, 1), is_head=True)),
    )


def dots(root: Element) -> list[tuple[float, float, str]]:
    """Return the positions of the drawn changesets, and their styles."""
    return [
        (float(each.get("cx") or 0), float(each.get("cy") or 0), each.get("class") or "")
        for each in root.iter(f"{SVG}circle")
        if "sk-mark" in (each.get("class") or "")
    ]


def test_each_origin_has_a_lane_and_time_runs_downwards(merge: Graph) -> None:
    (a1, a2, b1, b2) = dots(parsed(history_svg(merge)))
    assert a1[0] == a2[0] < b1[0] == b2[0]
    assert a1[1] < a2[1] < b1[1] < b2[1]


def test_lines_lead_from_parents_to_children(merge: Graph) -> None:
    root = parsed(history_svg(merge))
    (a1, a2, b1, b2) = ((x, y) for x, y, _ in dots(root))
    paths = [path.get("d") or "" for path in root.iter(f"{SVG}path")]
    ends = set()
    for path in paths:
        numbers = [float(each) for each in re.findall(r"-?[0-9.]+", path)]
        last = (numbers[0], numbers[-1]) if path.count("V") and "C" not in path else None
        ends.add(((numbers[0], numbers[1]), last or (numbers[-2], numbers[-1])))
    assert ends == {(a1, a2), (a1, b1), (a2, b2), (b1, b2)}
    assert "a:1 → b:1" in tooltips(root)


def test_merges_are_hollow_and_conflicts_have_a_ring(merge: Graph) -> None:
    root = parsed(history_svg(merge))
    assert ["sk-open" in style for _, _, style in dots(root)] == [False, False, False, True]
    rings = [each for each in root.iter(f"{SVG}circle") if "sk-ring" in (each.get("class") or "")]
    assert [(ring.get("cx"), ring.get("cy")) for ring in rings] == [
        (f"{x:.1f}".removesuffix(".0"), f"{y:.1f}".removesuffix(".0"))
        for x, y, _ in dots(root)[1:3]
    ]
    assert {"2 conflicts", "1 conflict", "head"} <= set(words(root))


def test_a_changeset_says_all_about_itself(merge: Graph) -> None:
    root = parsed(history_svg(merge, title="The notes"))
    assert root.findtext(f"{SVG}title") == "The notes"
    assert root.findtext(f"{SVG}desc") == (
        "4 changesets of 2 nodes, time downwards, one lane for each node. 1 changeset joined"
        " several lines; 2 changesets took part in conflicts that there are now."
    )
    said = {line for tip in tooltips(root) for line in tip.splitlines()}
    assert {
        f"{A}:1 ({id_of(A, 1)[:12]})",
        "2027-01-15 08:00:01 UTC, Ann",
        "begin",
        "notes +1 ~2 -3",
        f"came from {B}",
        "takes part in 2 conflicts",
        "on top of 2 others",
    } <= said
    assert {"a:1", "Ann", "begin", "2027-01-15 08:00:01", "notes +1 ~2 -3"} <= set(words(root))


def test_legend_explains_the_marks_that_occur(merge: Graph) -> None:
    assert {
        "changeset",
        "changeset on top of several others",
        "takes part in a conflict",
        "head: nothing on top of it",
        "+ inserted, ~ updated, - deleted rows",
    } <= set(words(parsed(history_svg(merge))))
    plain = words(parsed(history_svg(graph(GraphNode(entry=entry(A, 1, comment="begin"))))))
    assert "changeset" in plain
    assert not [each for each in plain if "conflict" in each or "several" in each or "~" in each]


def test_legend_is_inside_the_picture(merge: Graph) -> None:
    root = parsed(history_svg(merge))
    width, height = (float(root.get(name) or 0) for name in ("width", "height"))
    for each in root.iter(f"{SVG}text"):
        assert 0 <= float(each.get("y") or 0) <= height
        assert float(each.get("x") or 0) + 6 * len("".join(each.itertext())) <= width


def test_nodes_of_one_branch_are_told_apart() -> None:
    other = "a~00000002"
    root = parsed(
        history_svg(graph(GraphNode(entry=entry(A, 1)), GraphNode(entry=entry(other, 1))))
    )
    assert {f"{A}:1", f"{other}:1"} <= set(words(root))


def test_what_is_missing_is_said_and_hangs_on_nothing() -> None:
    cut = graph(GraphNode(entry=entry(A, 2, (A, 1)), parents_elsewhere=1), is_cut=True)
    root = parsed(history_svg(cut))
    assert "Earlier changesets are not shown. Times are UTC." in words(root)
    assert len([1 for path in root.iter(f"{SVG}path") if "sk-far" in (path.get("class") or "")])


def test_nothing_can_be_drawn() -> None:
    assert "No changesets." in words(parsed(history_svg(Graph())))
    assert len(statements(history_dot(Graph()))) == 2
    empty = Topology(nodes=(), channels=(), hearings=())
    assert "No nodes." in words(parsed(topology_svg(empty)))
    assert len(statements(topology_dot(empty))) == 2


def test_texts_of_users_stay_text() -> None:
    hostile = HOSTILE + "\x00\x1b[31m\ud800\nline"
    node = GraphNode(
        entry=entry(A, 1, author=HOSTILE, comment=hostile, tables={HOSTILE: Counts(1)})
    )
    root = parsed(history_svg(graph(node), title=HOSTILE))
    assert root.findtext(f"{SVG}title") == HOSTILE
    assert any(HOSTILE in tip for tip in tooltips(root))
    dot = history_dot(graph(node), title=HOSTILE)
    assert len(statements(dot)) == 3
    assert r"\\N \"quoted\" \\" in dot


def test_long_texts_are_cut_and_whole_in_the_tooltip() -> None:
    long = "word " * 100
    node = GraphNode(entry=entry(A, 1, author=long, comment=long, is_head=True), conflicts=100)
    root = parsed(history_svg(graph(node)))
    assert all(len(each) < 80 for each in words(root))
    assert any(long.strip() in tip for tip in tooltips(root))
    wide = GraphNode(entry=entry(A, 1, comment="語" * 60))
    (shown,) = (each for each in words(parsed(history_svg(graph(wide)))) if "語" in each)
    assert shown == "語" * 31 + "…"


def test_fifty_changesets_of_twelve_nodes_can_be_drawn() -> None:
    nodes = [
        GraphNode(entry=entry(f"node-{number % 12}~00000001", number + 1)) for number in range(50)
    ]
    root = parsed(history_svg(graph(*nodes)))
    places = [(x, y) for x, y, _ in dots(root)]
    assert len(set(places)) == 50
    assert len({x for x, _ in places}) == 12


def test_history_for_graphviz(merge: Graph) -> None:
    found = statements(history_dot(merge))
    ids = [f'"{node.entry.id}"' for node in merge.nodes]
    edges = {line for line in found if "->" in line}
    assert edges == {
        f"{ids[0]} -> {ids[1]};",
        f"{ids[0]} -> {ids[2]};",
        f"{ids[1]} -> {ids[3]};",
        f"{ids[2]} -> {ids[3]};",
    }
    (merged,) = (line for line in found if line.startswith(f"{ids[3]} ["))
    assert "peripheries=2" in merged
    assert sum("color=red" in line for line in found) == 2
    assert sum(f'group="{A}"' in line for line in found) == 2


def test_a_real_history_can_be_drawn(tmp_path: Path) -> None:
    wall = Wall()
    with Branch(tmp_path, "A", wall) as a, Branch(tmp_path, "B", wall) as b:
        a.write(note("1", title="x"), author="Ann", comment="begin")
        a.give(b)
        a.write(note("1", title="y"))
        b.write(note("1", title="z"))
        b.give(a)
        found = a.history.graph()
    root = parsed(history_svg(found))
    assert len(dots(root)) == 3
    assert words(root).count("1 conflict") == 2
    assert len(statements(history_dot(found))) == 7


# Topology.

HUB, LAPTOP, PHONE, SENSOR, PRINTER = (
    f"{name}~00000001" for name in ("hub", "laptop", "phone", "sensor", "printer")
)


def status(
    origin: str, channels: list[tuple[str, bool]], *peers: PeerStatus, warnings: list[str]
) -> Status:
    return Status(
        origin=origin,
        branch=origin.partition("~")[0],
        trunk="0A",
        session="",
        vector={},
        heads=[],
        channels=channels,
        peers=list(peers),
        held=0,
        held_bytes=0,
        quarantined=[],
        skipped=[],
        conflicts=0,
        problems=[],
        digests={},
        diverged={},
        warnings=warnings,
        bootstrap="",
        counts={},
    )


def peer(origin: str, *ports: int, **more: Any) -> PeerStatus:
    facts: dict[str, Any] = {
        "behind": 0,
        "behind_s": 0.0,
        "ahead": 0,
        "heard_at": NOW - 5,
        "direction": "both",
        **more,
    }
    return PeerStatus(origin=origin, vector={}, ports=list(ports), **facts)


@pytest.fixture
def hub() -> Status:
    return status(
        HUB,
        [("notes", True), ("office", False)],
        peer(LAPTOP, 0, behind=1200, behind_s=190.0),
        peer(PHONE, heard_at=0.0, ahead=2),
        peer(SENSOR, 0, direction="send", heard_at=NOW - 7200),
        peer(PRINTER, 1, direction="receive"),
        warnings=["another node is called hub, too", "rules differ"],
    )


def test_a_node_says_whom_it_hears_and_how_far_others_are(hub: Status) -> None:
    topology = topology_of([hub], now=NOW)
    assert topology.channels == ("notes", "office")
    assert topology.hearings == (
        Hearing(HUB, LAPTOP, "notes"),
        Hearing(HUB, SENSOR, "notes"),
        Hearing(HUB, PRINTER, "office"),
    )
    nodes = {node.origin: node for node in topology.nodes}
    assert nodes[HUB] == TopologyNode(
        origin=HUB, is_asked=True, warnings=("another node is called hub, too", "rules differ")
    )
    assert nodes[LAPTOP] == TopologyNode(origin=LAPTOP, behind=1200, behind_s=190.0, heard_s=5.0)
    assert nodes[PHONE].heard_s is None
    assert topology.channels_of(PHONE) == []
    assert topology.channels_of(HUB) == ["notes", "office"]
    assert topology.is_cut_off(HUB, "office")
    assert not topology.is_cut_off(HUB, "notes")


def test_what_several_nodes_say_is_put_together(hub: Status) -> None:
    laptop = status(LAPTOP, [("notes", True)], peer(HUB, 0, ahead=7), warnings=[])
    topology = topology_of([hub, laptop], now=NOW)
    nodes = {node.origin: node for node in topology.nodes}
    assert (nodes[HUB].is_asked, nodes[HUB].ahead, len(nodes[HUB].warnings)) == (True, 7, 2)
    assert (nodes[LAPTOP].is_asked, nodes[LAPTOP].behind) == (True, 1200)
    assert Hearing(LAPTOP, HUB, "notes") in topology.hearings


def test_channels_of_one_name_on_several_brokers_are_told_apart() -> None:
    relay = status(
        HUB, [("notes", True), ("notes", True)], peer(LAPTOP, 0), peer(PHONE, 1), warnings=[]
    )
    topology = topology_of([relay], now=NOW)
    assert topology.channels == ("notes", "notes (2)")
    assert topology.channels_of(PHONE) == ["notes (2)"]


def test_the_picture_shows_lag_direction_and_clashes(hub: Status) -> None:
    root = parsed(topology_svg(topology_of([hub], now=NOW)))
    said = words(root)
    assert {"lacks 1,200, for 3 min", "has 2 more", "only heard of", "heard 2 h ago"} <= set(said)
    assert {"only sends", "only receives", "has the same", "not connected", "here"} <= set(said)
    assert {"! another node is", "behind relays", "notes", "office"} <= set(said)
    assert any("rules differ" in tip for tip in tooltips(root))
    assert any("hears laptop, sensor, printer" in tip for tip in tooltips(root))
    boxes = [each.get("class") or "" for each in root.iter(f"{SVG}rect") if each.get("rx")]
    assert ["sk-bad" in style for style in boxes] == [True, False, False, False, False]
    assert root.findtext(f"{SVG}desc") == (
        "5 nodes on 2 channels: notes; office. 1 lack changesets; 1 are reached by relays only."
    )


def test_what_is_said_of_a_node_is_inside_its_box(hub: Status) -> None:
    root = parsed(topology_svg(topology_of([hub], now=NOW)))
    groups = [each for each in root.iter(f"{SVG}g") if each.find(f"{SVG}rect[@rx]") is not None]
    assert len(groups) == 5
    for group in groups:
        box = group.find(f"{SVG}rect[@rx]")
        assert box is not None
        left, width = (float(box.get(name) or 0) for name in ("x", "width"))
        for each in group.iter(f"{SVG}text"):
            assert left < float(each.get("x") or 0) < left + width, "".join(each.itertext())


def test_a_line_leads_from_each_node_to_each_of_its_channels(hub: Status) -> None:
    root = parsed(topology_svg(topology_of([hub], now=NOW)))
    lines = list(root.iter(f"{SVG}line"))
    buses = {
        float(line.get("y1") or 0): "far" if "sk-far" in (line.get("class") or "") else "there"
        for line in lines
        if "sk-bus" in (line.get("class") or "")
    }
    assert list(buses.values()) == ["there", "there", "far"]
    ends = [float(line.get("y2") or 0) for line in lines if line.get("x1") == line.get("x2")]
    notes, office, relays = buses
    assert ends == [notes, office, notes, relays, notes, office]


def test_topology_for_graphviz(hub: Status) -> None:
    found = statements(topology_dot(topology_of([hub], now=NOW), title=HOSTILE))
    edges = [line for line in found if "->" in line]
    assert edges == [
        f'"{HUB}" -> channel0 [dir=both];',
        f'"{HUB}" -> channel1 [dir=both, style=dashed, color=red];',
        f'"{LAPTOP}" -> channel0 [dir=both];',
        f'"{SENSOR}" -> channel0 [dir=forward];',
        f'"{PRINTER}" -> channel1 [dir=back];',
    ]
    (phone,) = (line for line in found if line.startswith(f'"{PHONE}"'))
    assert "style=dashed" in phone
    (own,) = (line for line in found if line.startswith(f'"{HUB}" ['))
    assert "color=red" in own
    assert "another node is called hub, too" in own


def test_the_same_is_drawn_the_same(hub: Status, merge: Graph) -> None:
    topology = topology_of([hub], now=NOW)
    assert topology_svg(topology) == topology_svg(topology_of([hub], now=NOW))
    assert history_svg(merge) == history_svg(merge)
