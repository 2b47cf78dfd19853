"""The graph of a run: layers, families, the tree, the layout and the picture."""

import itertools
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.recorded.deciding.dag import graph_of, tree_lines
from marin.recorded.deciding.run_steps import RunStep
from marin.recorded.deciding.svg import svg_of


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    count = draw(st.integers(min_value=0, max_value=25))
    needs: dict[str, tuple[str, ...]] = {}
    for number in range(count):
        some = draw(st.lists(st.integers(0, number - 1), max_size=4)) if number else []
        needs[f"n{number}"] = tuple(f"n{other}" for other in some)
    return needs


def steps_of(needs: dict[str, tuple[str, ...]], status: str = "succeeded") -> list[RunStep]:
    return [RunStep(path, path, wanted, status, 1.0) for path, wanted in needs.items()]


@given(graphs(), st.integers(0, 3))
def test_every_step_is_in_exactly_one_node_and_in_the_tree(needs: dict[str, tuple[str, ...]], fold: int) -> None:
    nodes = graph_of(steps_of(needs), fold)
    assert sorted(path for node in nodes for path in node.paths) == sorted(needs)
    text = "\n".join(line for line, _ in tree_lines(nodes))
    assert all(node.label in text for node in nodes)
    ET.fromstring(svg_of(nodes, "t"))


def test_a_circle_that_a_damaged_file_claims_ends() -> None:
    assert len(graph_of(steps_of({"a": ("b",), "b": ("a",), "c": ()}))) == 3


def test_the_tree_shows_each_subtree_once() -> None:
    needs = {"data": (), "stats": ("data",), "model": ("data", "stats"), "report": ("model", "stats")}
    assert [line for line, _ in tree_lines(graph_of(steps_of(needs)))] == [
        "report  succeeded  1.0 s",
        "├─ model  succeeded  1.0 s",
        "│  ├─ data  succeeded  1.0 s",
        "│  └─ stats  succeeded  1.0 s",
        "│     └─ data  succeeded  1.0 s",
        "└─ stats  succeeded  1.0 s  (see above)",
    ]


def test_like_steps_are_one_node_that_has_the_worst_status() -> None:
    steps = [RunStep(f"raw/shard-{n}", f"/p/s{n}", (), "failed" if n == 7 else "cached") for n in range(1000)]
    steps.append(RunStep("total", "/p/t", tuple(step.path for step in steps), "dep_failed"))
    family, total = graph_of(steps)
    assert (family.label, family.status, family.statuses) == (
        "raw/shard-* (1000 steps)",
        "failed",
        {"cached": 999, "failed": 1},
    )
    assert total.needs == (family.id,)
    assert len(graph_of(steps, fold=0)) == 1001


@pytest.mark.parametrize("fold", [0, 6])
def test_two_thousand_steps_can_be_read(fold: int) -> None:
    """Boxes of one column do not overlap, texts fit their boxes, and columns do not run into each other."""
    needs = {
        f"layer{layer}/step{n}": tuple(f"layer{layer - 1}/step{(n + k) % 100}" for k in range(3)) if layer else ()
        for layer in range(20)
        for n in range(100)
    }
    nodes = graph_of(steps_of(needs), fold)
    space = "{http://www.w3.org/2000/svg}"
    columns: dict[float, list[tuple[float, float]]] = {}
    for group in ET.fromstring(svg_of(nodes, "2,000 steps")).iter(f"{space}g"):
        if group.get("class") == "node":
            box, text = group.find(f"{space}rect"), group.find(f"{space}text")
            assert text.text
            x, y, width = (float(box.get(name, "")) for name in ("x", "y", "width"))
            assert len(text.text) * 7 < width
            columns.setdefault(x, []).append((y, width))
    assert sum(map(len, columns.values())) == len(nodes) == (20 if fold else 2000)
    assert len(columns) == 20
    for ys in columns.values():
        assert all(later - earlier >= 20 for earlier, later in itertools.pairwise(sorted(y for y, _ in ys)))
    for x, following in itertools.pairwise(sorted(columns)):
        assert x + max(width for _, width in columns[x]) < following


def test_names_of_steps_are_no_markup() -> None:
    root = ET.fromstring(svg_of(graph_of([RunStep('<a href="x">&\x1b', "/p", (), "cached")]), "<b>"))
    assert root is not None
    assert "\x1b" not in ET.tostring(root, encoding="unicode")
