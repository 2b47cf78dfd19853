import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from marin.recorded.deciding.code_diff import uncommitted_files
from marin.recorded.deciding.run_diff import diff_runs
from support.marin.recorded_runs import Done, RecordedStorage, started, step_ended

Marin = Callable[..., Done]


def test_a_graph_is_a_tree_a_picture_or_json(storage: RecordedStorage, marin: Marin) -> None:
    a = storage.step("raw/a-000001")
    b = storage.step("b-000002", dependencies=[a["output_path"]])
    storage.run("train-0a1b2c", [a, b], [started(2), step_ended(a), step_ended(b, "failed")])
    done = marin("graph", "train")
    assert done.out == "b  failed  1 min 2 s\n└─ raw/a  succeeded  1 min 2 s\n"
    assert "\x1b" not in done.out
    place = storage.root / "graph.svg"
    drawn = marin("graph", "train", "--svg", str(place))
    assert (drawn.code, drawn.out, drawn.err) == (0, "", f"marin: wrote {place}: 2 steps in 2 nodes\n")
    assert marin("graph", "train", "--svg", "-").out == place.read_text()
    nodes = marin("graph", "train", "--json").json["nodes"]
    assert [(node["label"], node["needs"]) for node in nodes] == [("raw/a", []), ("b", [a["output_path"]])]


def version(name: str, *dependencies: Any, **config: Any) -> dict[str, Any]:
    return {"name": name, "config": config, "dependencies": list(dependencies)}


def test_a_diff_tells_fields_inputs_values_and_code(storage: RecordedStorage, marin: Marin) -> None:
    old, new = version("a", n=1), version("a", n=2)
    before = [
        storage.step("a-000001", version=old, source={"f": "source 11", "LIMIT": "5"}),
        storage.step("b-000001", version=version("b", old), unversioned={"workers": 1}),
        storage.step("gone-000001"),
    ]
    after = [
        storage.step("a-000002", version=new, source={"f": "source 22", "LIMIT": "5"}),
        storage.step("b-000002", version=version("b", new), unversioned={"workers": 8}),
        storage.step("come-000001"),
    ]
    storage.run("train-aaaaaa", before)
    storage.run("train-bbbbbb", after)
    done = marin("diff", "train-a", "train-b")
    assert done.code == 0
    assert done.out.replace(str(storage.root), "ROOT") == (
        "+ come  ROOT/come-000001\n"
        "- gone  ROOT/gone-000001\n"
        "~ a  ROOT/a-000001 -> ROOT/a-000002\n"
        "  n: 1 -> 2\n"
        "  (code) source of f: 11 -> 22\n"
        "~ b  ROOT/b-000001 -> ROOT/b-000002\n"
        "  dependency a: n: 1 -> 2\n"
        "  (not versioned) workers: 1 -> 8\n"
        "1 added, 1 removed, 2 changed, 0 equal\n"
    )
    found = marin("diff", "train-a", "train-b", "--json", "--exit-code")
    assert found.code == 8
    assert found.json["changed"][0]["fields"] == [{"where": "n", "before": "1", "after": "2"}]
    same = marin("diff", "train-a", "train-a", "--exit-code")
    assert (same.code, same.out) == (0, "0 added, 0 removed, 0 changed, 3 equal\n")


def test_runs_of_equal_steps_have_each_its_own_code(storage: RecordedStorage, marin: Marin) -> None:
    step = storage.step("a-000001")
    diff = "diff --git a/lib/f.py b/lib/f.py\n--- a/lib/f.py\n+++ b/lib/f.py\n@@ -1 +1 @@\n-x = 1\n+x = {}\n"
    texts = {"one": {"diff": diff.format(2), "untracked": {"new.py": "n = 1\n"}}, "two": {"diff": diff.format(3)}}
    (storage.root / "experiments/code").mkdir(parents=True)
    for name, content in texts.items():
        (storage.root / f"experiments/code/{name}.json").write_text(json.dumps(content))
    codes = [
        {"commit": "c0ffee", "branch": "main", "dirty": True, "digest": "1", "texts": "one"},
        {"commit": "beef", "branch": "topic", "dirty": True, "digest": "2", "texts": "two"},
        {"problem": "no git checkout", "commit": None, "texts": "../lost"},
    ]
    events = [[started(code=code), step_ended(step, attempts=[{"outcome": "succeeded"}])] for code in codes[:1]]
    events += [[started(code=code), step_ended(step, "cached")] for code in codes[1:]]
    first, second, third = (storage.run("train-0a1b2c", [step], each, hour=hour) for hour, each in enumerate(events))
    done = marin("diff", first, second)
    assert done.out == (
        "git_commit: c0ffee -> beef\nbranch: main -> topic\nuncommitted: 1 -> 2\n"
        "0 added, 0 removed, 0 changed, 1 equal\n"
        "committed changes: git diff c0ffee beef\n"
        "--- lib/f.py (not committed, before)\n+++ lib/f.py (not committed, after)\n@@ -3,4 +3,4 @@\n"
        " +++ b/lib/f.py\n @@ -1 +1 @@\n -x = 1\n-+x = 2\n++x = 3\n"
        "--- new.py (not committed, before)\n+++ new.py (not committed, after)\n@@ -1 +0,0 @@\n-n = 1\n"
    )
    assert marin("show", third).out.count("commit       no git checkout\n") == 1
    shown = marin("show", first)
    assert "commit       c0ffee (main, with uncommitted changes)\n" in shown.out
    assert "\n  lib/f.py  89 characters\n  new.py  6 characters\n" in shown.out
    made = marin("show", step["output_path"])
    assert f"made by   {first}\ncommit    c0ffee (main, with uncommitted" in made.out, (
        "not the later ones, which used it"
    )
    assert marin("show", first, "--json").json["code_texts"]["untracked"] == {"new.py": "n = 1\n"}


STEPS = st.lists(
    st.builds(
        lambda name, n: {"name": name, "output_path": f"/p/{name}-{n}", "version": version(name, n=n)},
        st.sampled_from("abc"),
        st.integers(0, 3),
    ),
    max_size=6,
)


@given(STEPS, STEPS)
def test_every_step_is_told_of_once(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    diff = diff_runs({"steps": before}, {"steps": after})
    paths = {step["output_path"] for step in before}, {step["output_path"] for step in after}
    assert len(diff.removed) + len(diff.changed) + diff.equal == len(paths[0])
    assert len(diff.added) + len(diff.changed) + diff.equal == len(paths[1])
    assert not diff_runs({"steps": after}, {"steps": after}).differs
    assert not {name for name, _ in diff.added} & {name for name, _ in diff.removed}


def test_infos_of_other_shapes_are_compared_as_far_as_they_go() -> None:
    diff = diff_runs({"steps": [None, {"name": "a"}]}, {"steps": [{"name": "a", "version": None, "source": 3}]})
    assert (diff.equal, diff.differs) == (1, False)


def test_a_new_file_alone_has_no_commit() -> None:
    assert uncommitted_files({"diff": "", "untracked": {"a.py": "x = 1\n"}}) == {"a.py": "x = 1\n"}
