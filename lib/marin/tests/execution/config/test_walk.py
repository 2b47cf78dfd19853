import pytest

from marin.execution import (
    InputName,
    InputNameEvent,
    VersionedEvent,
    collect_dependencies_and_version,
    mirrored,
    output_path_of,
    this_output_path,
    upstream_steps,
    versioned,
    walk_config,
)
from rigging.errors import InvalidRequest
from support.marin.steps import MakeStep


def test_events_in_order_with_their_paths(make_step: MakeStep) -> None:
    a = make_step("a")
    config = make_step("n", {"z": [versioned(1), (a / "f",)], "a": mirrored(versioned("m"))}, this_output_path()).config
    assert list(walk_config(config)) == [
        VersionedEvent("x.z.[0]", 1),
        InputNameEvent("x.z.[1].[0]", InputName(a, "f")),
        VersionedEvent("x.a", "m"),
    ]
    assert list(walk_config([a])) == [InputNameEvent("[0]", InputName(a, None))]


def test_keys_on_the_way_to_something_must_be_strings(make_step: MakeStep) -> None:
    assert list(walk_config({"k": {1: "plain"}})) == []
    with pytest.raises(InvalidRequest, match=r"field 'k'.*key 1 of type int"):
        list(walk_config({"k": {1: [versioned(2)]}}))


def test_dependencies_are_not_merged_and_upstream_steps_are(make_step: MakeStep) -> None:
    a, b, c = make_step("a"), make_step("b"), make_step("c")
    config = [a, versioned([b / "f"]), a / "g", output_path_of(b).nonblocking(), {"s": {a}}]
    collected = collect_dependencies_and_version(config)
    assert collected.dependencies == [a, b, a, a]
    assert collected.pseudo_dependencies == [b]
    assert collected.version == {
        "[0]": "DEP[0]", "[1]": ["DEP[1]/f"], "[2]": "DEP[2]/g", "[3]": "DEP[3]", "[4].s.[0]": "DEP[4]",
    }  # fmt: skip
    assert upstream_steps(config) == [a, b]
    # They are dependencies like others: who looks for what a config needs must find them.
    assert upstream_steps({"x": versioned([a / "f", {"y": b}]), "z": versioned(c)}) == [a, b, c]
    assert upstream_steps(versioned(1)) == upstream_steps([InputName(None, "/elsewhere")]) == []


def test_the_members_of_a_set_come_in_one_order(make_step: MakeStep) -> None:
    steps = [make_step(name) for name in "dbca"]
    assert [event.input_name.step.name for event in walk_config(set(steps))] == ["a", "b", "c", "d"]  # type: ignore[union-attr]
