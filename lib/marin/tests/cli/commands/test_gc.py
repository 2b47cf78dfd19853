import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.cli.context import CliContext
from marin.recorded.deciding.garbage import OutputFacts, OutputFiles, judge_outputs, references
from support.marin.recorded_runs import Done, RecordedStorage, ended, started

Marin = Callable[..., Done]


def names(done: Done) -> set[str]:
    return {Path(item["path"]).name for item in done.json}


def listed(marin: Marin, *words: str) -> set[str]:
    return names(marin("gc", "--older-than", "0s", "--json", *words, context=CliContext(now=lambda: time.time() + 5)))


def test_outputs_that_no_run_refers_to_are_listed_with_their_sizes(storage: RecordedStorage, marin: Marin) -> None:
    used = storage.step("used-000001")
    storage.step("old/unused-000002")
    (storage.root / "old/unused-000002/part").mkdir()
    (storage.root / "old/unused-000002/part/data").write_bytes(b"x" * 5000)
    size = 5007 + (storage.root / "old/unused-000002/.executor_info").stat().st_size
    storage.run("train-0a1b2c", [used])
    done = marin("gc", "--older-than", "0", context=CliContext(now=lambda: time.time() + 5))
    assert done.code == 0
    assert done.out.replace(str(storage.root), "ROOT") == (
        f"SIZE      OUTPUT\n{size / 1024:.2f} KiB  ROOT/old/unused-000002\n"
    )
    assert (storage.root / "old/unused-000002/part/data").exists()
    assert marin("gc", "--json").json == [], "what is younger than a day is kept"


def test_what_is_not_certain_is_kept(storage: RecordedStorage, marin: Marin) -> None:
    for name in (
        *("garbage-000001", "leased-000003", "damaged-000006", "tmp/temporary-000007", "experiments/x-000008"),
        *("hardcoded-000009", "in-command-00000a", "outer-00000b/inner-00000b", "outer-00000b"),
        "needed-by-spec-00000c",
    ):
        storage.step(name)
    storage.step("running-000002", status="RUNNING")
    (storage.root / "leased-000003/.executor_status.lock").write_text("{}")
    storage.step("spec_00000004", executor_version="step_runner")
    storage.step("copied-000005", output_path="gs://marin-eu-west4/copied-000005")
    (storage.root / "damaged-000006/.executor_info").write_text("{")
    (storage.root / "cache/call").mkdir(parents=True)
    (storage.root / "cache/call/.executor_status").write_text("SUCCESS")
    storage.step("spec_0000000d", executor_version="step_runner", dependencies=["needed-by-spec-00000c"])
    command = f"cat {storage.root}/in-command-00000a/part-1 | wc"
    used = {"a": "mirror://hardcoded-000009/x", "b": command, "c": "outer-00000b/inner-00000b"}
    storage.run("train-0a1b2c", [storage.step("run-000010", config=used)])
    for name in ("garbage-000001", "killed-00000e", "run-000010"):
        storage.step(f"{name}.forced", output_path=f"{storage.root}/{name}")
    assert listed(marin) == {"garbage-000001", "killed-00000e"}, "what --force has set aside belongs to its output"
    kept = marin("gc", "--kept", "--older-than", "0s", "--json").json
    assert len(kept) == 14
    assert not {Path(item["path"]).name for item in kept} & {"temporary-000007", "x-000008", "call"}


def refuse(path: str) -> None:
    raise PermissionError(13, os.strerror(13), path)


def test_deletion_asks_and_takes_only_what_no_run_refers_to(
    storage: RecordedStorage, marin: Marin, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = storage.step("used-000001")
    for name in ("gone-000002", "late-000003", "taken-000004"):
        storage.step(name)
        (storage.root / name / "data").write_text("x")
    storage.run("train-0a1b2c", [used])
    words = ("gc", "--delete", "--older-than", "0s")
    later = {"now": lambda: time.time() + 5}
    assert marin(*words, context=CliContext(is_interactive=lambda: False, **later)).code == 3
    assert "--dry-run and --delete exclude each other" in marin(*words, "--yes", "--dry-run").err

    def begin_runs(_question: str) -> bool:
        late = json.loads((storage.root / "late-000003/.executor_info").read_text())
        storage.run("late-0a1b2c", [late])
        (storage.root / "taken-000004/.executor_status").write_text("RUNNING")
        return True

    done = marin(*words, context=CliContext(ask=begin_runs, is_interactive=lambda: True, **later))
    assert done.code == 8
    assert sorted(os.listdir(storage.root)) == ["experiments", "late-000003", "taken-000004", "used-000001"]
    with monkeypatch.context() as patch:
        patch.setattr("marin.recorded.reading.outputs.create_lock", refuse)
        storage.step("closed-000005")
        closed = marin(*words, "--yes", context=CliContext(**later))
    assert (closed.code, "closed-000005: it cannot be removed: Permission denied" in closed.err) == (8, True)
    assert "1 output(s) deleted, 2 kept" in done.err


def test_runs_age_only_where_asked_and_added_files_are_shown(storage: RecordedStorage, marin: Marin) -> None:
    old, shared, busy = (storage.step(name) for name in ("old-000001", "shared-000002", "busy-000003"))
    for name in ("needed-000004", "old-000001/inner-000005"):
        storage.step(name)
    storage.step("running-000006", status="RUNNING")
    (storage.root / "old-000001/notes.md").write_text("mine")
    os.utime(storage.root / "old-000001/.executor_status", (0, 1000))
    waits = {"config": "needed-000004", "needs": "running-000006"}
    storage.run("old-0a1b2c", [old, shared])
    storage.run("waits-0a1b2c", [waits, busy])
    storage.run("new-0a1b2c", [shared], [])
    week = 7 * 86_400
    soon = time.time() + week
    os.utime(next((storage.root / "experiments").glob("new-*.events.jsonl")), (soon, soon))
    context = CliContext(now=lambda: time.time() + week)
    assert marin("gc", "--json", context=context).json == []
    done = marin("gc", "--runs-older-than", "3d", "--json", context=context)
    assert {Path(item["path"]).name: item["added"] for item in done.json} == {
        "old-000001": ["notes.md"],
        "inner-000005": [],
    }, "neither what a run may still need, nor what a later run used"
    assert f"{storage.root}/old-000001: changed after its step ended: notes.md\n" in done.err
    assert "any of 2 run file(s); 1 older one(s) do not count" in done.err


def test_a_run_is_removed_with_what_only_it_names(storage: RecordedStorage, marin: Marin) -> None:
    own, shared, busy = (storage.step(name) for name in ("own-000001", "shared-000002", "busy-000003"))
    storage.step("read-000004")
    storage.step("elsewhere-000005", config="read-000004")
    storage.step("own-000001.forced", output_path=own["output_path"], config="shared-000002")
    (storage.root / "busy-000003/.executor_status.lock").write_text("{}")
    steps = [own, shared, busy, {"output_path": f"{storage.root}/read-000004"}]
    code = storage.root / "experiments/code"
    code.mkdir(parents=True)
    for name in ("mine", "both"):
        (code / f"{name}.json").write_text("{}")
    first = storage.run("train-0a1b2c", steps, [started(code={"texts": "mine"}), ended()], hour=1)
    storage.run("train-0a1b2c", steps, [started(code={"texts": "both"}), ended()], hour=2)
    storage.run("train-ffffff", [shared], [started(code={"texts": "both"}), ended()])

    def left() -> set[str]:
        return {path.name for path in storage.root.rglob("*-*") if path.suffix != ".jsonl"} | set(os.listdir(code))

    everything = left()
    refused = marin("rm", "train", "--yes")
    assert (refused.code, left()) == (3, everything)
    assert "'train' begins runs of different steps: train-" in refused.err
    assert marin("rm", "train-0a", context=CliContext(is_interactive=lambda: False)).code == 3
    assert "another run of equal steps names them" in marin("rm", first, "--yes").err
    assert everything - left() == {"mine.json"}
    done = marin("rm", "train-0a", "--yes", "--json")
    assert done.json["deleted"] == [f"{storage.root}/own-000001"]
    assert f"kept: {storage.root}/busy-000003: a step is writing it" in done.err
    assert everything - left() == {"mine.json", "own-000001", "own-000001.forced", "train-0a1b2c.json"}
    assert [run["steps_id"] for run in marin("runs", "--json").json] == ["train-ffffff"]


def facts(root: str, name: str, **info: Any) -> OutputFacts:
    return OutputFacts(OutputFiles(name, 1, 1, 0.0, False), "SUCCESS", {"output_path": f"{root}/{name}", **info})


NAMES = st.lists(st.sampled_from(["a", "b", "c d", "e'f"]), min_size=1, max_size=3).map("/".join)


@given(
    st.sampled_from([("/p", "/p"), ("/p q/é", "/p q/é"), ("gs://b", "gs://b"), ("file:///p", "/p"), ("/p", "/moved")]),
    st.sets(NAMES, max_size=8),
    st.sets(NAMES, max_size=3),
    st.dictionaries(NAMES, NAMES, max_size=5),
)
def test_what_is_kept_loses_nothing_that_it_needs(
    roots: tuple[str, str], outputs: set[str], refers: set[str], needs: dict[str, str]
) -> None:
    root, written = roots
    found = [facts(root, name, config=needs.get(name)) for name in sorted(outputs)]
    run = {"steps": [{"config": [f"cat {written}/{name} x" for name in refers]}]}
    verdicts = judge_outputs(found, references(run, roots, found), root, 1.0)
    kept = {verdict.output.files.name for verdict in verdicts if verdict.kept}
    removed = outputs - kept
    assert not refers & removed
    for name in removed:
        assert not any(other.startswith(f"{name}/") or name.startswith(f"{other}/") for other in kept)
        assert not any(other.startswith(f"{name}/") for other in refers)


def test_runs_are_looked_for_everywhere(storage: RecordedStorage, marin: Marin, tmp_path: Path) -> None:
    step = storage.step("a-000001")
    refused = marin("gc")
    assert refused.code == 3
    assert "name the place with --runs" in refused.err
    storage.run("here-0a1b2c", [])
    RecordedStorage(tmp_path / "team").run("there-0a1b2c", [step])
    assert listed(marin) == {"a-000001"}
    assert listed(marin, "--runs", str(tmp_path / "team/experiments")) == set()
    (storage.root / "experiments/here-0a1b2c.json").write_text("{")
    damaged = marin("gc", "--delete", "--yes", "--older-than", "0s")
    assert damaged.code == 3
    assert "here-0a1b2c.json is damaged" in damaged.err
    assert (storage.root / "a-000001/.executor_status").exists()
