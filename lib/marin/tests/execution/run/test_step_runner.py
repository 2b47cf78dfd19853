"""Running bare specs, from lists and from generators."""

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from fray.types import ResourceConfig
from marin.execution.artifact import Artifact
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import PreviousTaskFailedError, StatusFile
from marin.execution.lease.status_words import STATUS_DEP_FAILED, STATUS_FAILED, STATUS_SUCCESS
from marin.execution.lease.step_lease import step_lease
from marin.execution.record.function_source import function_source
from marin.execution.report.events import RunEnded, RunStarted, StepEnd, StepEnded, StepQueued
from marin.execution.run.spec_source import StreamTerms
from marin.execution.run.step_runner import StepRunner, check_cache, run_step
from marin.execution.step_spec import StepSpec
from rigging.errors import InvalidRequest, StepFailed
from support.marin.recorder import Recorder
from support.marin.steps import fail

MakeSpec = Callable[..., StepSpec]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def runner(recorder: Recorder) -> StepRunner:
    return StepRunner([recorder])


@pytest.fixture
def journal() -> list[str]:
    return []


@pytest.fixture
def make_spec(prefix: str, journal: list[str]) -> MakeSpec:
    def make(name: str, *deps: StepSpec, fn: Callable[[str], object] | None = None) -> StepSpec:
        def note(output_path: str) -> object:
            journal.append(name)
            return fn(output_path) if fn is not None else None

        return StepSpec(name=name, output_path_prefix=prefix, deps=deps, fn=note, hash_attrs={"n": 1})

    return make


def test_deps_first_and_once(runner: StepRunner, make_spec: MakeSpec, journal: list[str], recorder: Recorder) -> None:
    a = make_spec("a")
    b, c = make_spec("b", a), make_spec("c", a)
    d = make_spec("d", b, c)
    assert not runner.check_cache(d)
    runner.run([d, a, d])
    assert journal[0] == "a"
    assert journal[-1] == "d"
    assert sorted(journal) == ["a", "b", "c", "d"]
    assert recorder.ends() == dict.fromkeys("abcd", StepEnd.SUCCEEDED)
    runner.run([d])
    assert recorder.ends()["d"] is StepEnd.CACHED
    assert len(journal) == 4
    assert runner.check_cache(d)
    assert isinstance(recorder.events[0], RunStarted)
    assert isinstance(recorder.events[-1], RunEnded)


def test_what_is_left_in_storage(runner: StepRunner, make_spec: MakeSpec) -> None:
    dep = make_spec("dep")
    spec = make_spec("n", dep, fn=lambda path: {"path": path})
    runner.run([spec])
    info = json.loads(Path(spec.output_path, ".executor_info").read_text())
    fn_name = info.pop("fn_name")
    assert fn_name.endswith("note")
    assert info == {
        "name": "n", "config": {"n": 1}, "description": None, "override_output_path": None, "version": {},
        "dependencies": [dep.output_path], "output_path": spec.output_path, "executor_version": "step_runner",
        "source": function_source(spec.fn),
    }  # fmt: skip
    assert StatusFile(spec.output_path).status == STATUS_SUCCESS
    assert not Path(spec.output_path, ".executor_status.lock").exists()


def test_failures(runner: StepRunner, make_spec: MakeSpec, journal: list[str], recorder: Recorder) -> None:
    bad = make_spec("bad", fn=fail)
    after = make_spec("after", bad)
    last = make_spec("last", after)
    with pytest.raises(StepFailed, match=r"1 step\(s\) failed:\n  bad -> .*ValueError: bad\n.*2 step\(s\)") as caught:
        runner.run([last, make_spec("fine"), after])
    failure = caught.value.__cause__
    assert isinstance(failure, RuntimeError)
    assert str(failure) == f"Step failed: {bad.name_with_hash}"
    assert isinstance(failure.__cause__, ValueError)
    assert sorted(journal) == ["bad", "fine"]
    statuses = [StatusFile(spec.output_path).status for spec in (bad, after, last)]
    assert statuses == [STATUS_FAILED, STATUS_DEP_FAILED, STATUS_DEP_FAILED]
    assert recorder.ends()["last"] is StepEnd.DEP_FAILED
    with pytest.raises(StepFailed, match="failed previously"):
        runner.run([bad], force_run_failed=False)
    assert journal.count("bad") == 1


def test_a_dependant_that_comes_after_the_failure(runner: StepRunner, make_spec: MakeSpec, journal: list[str]) -> None:
    bad = make_spec("bad", fn=fail)

    def stream() -> Iterator[StepSpec]:
        yield bad
        eventually(lambda: StatusFile(bad.output_path).status == STATUS_FAILED, "it has failed")
        yield make_spec("after", bad)

    with pytest.raises(StepFailed, match=r"1 step\(s\) failed"):
        runner.run(stream())
    assert journal == ["bad"]


def test_a_long_stream_needs_little_memory(prefix: str, make_spec: MakeSpec) -> None:
    alive: weakref.WeakSet[StepSpec] = weakref.WeakSet()
    most, count = 0, 150
    shared = make_spec("shared")

    def stream() -> Iterator[StepSpec]:
        nonlocal most
        for index in range(count):
            spec = StepSpec(name=f"s{index}", output_path_prefix=prefix, deps=[shared], fn=lambda _: None)
            alive.add(spec)
            most = max(most, len(alive))
            yield spec

    StepRunner([]).run(stream(), max_concurrent=4)
    assert most <= StreamTerms().read_ahead + StreamTerms().readers + 8
    assert len(list(Path(prefix).glob("s*_*"))) == count + 1


def test_at_most_max_concurrent(runner: StepRunner, make_spec: MakeSpec) -> None:
    guard, active, most = threading.Lock(), 0, 0

    def work(_: str) -> None:
        nonlocal active, most
        with guard:
            active += 1
            most = max(most, active)
        threading.Event().wait(0.003)
        with guard:
            active -= 1

    runner.run((make_spec(f"s{index}", fn=work) for index in range(20)), max_concurrent=2)
    assert most <= 2
    with pytest.raises(ValueError, match="max_concurrent=0"):
        runner.run([], max_concurrent=0)


def test_a_dry_run(runner: StepRunner, make_spec: MakeSpec, prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    a = make_spec("a")
    runner.run([make_spec("b", a), a], dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["a", "b"]
    assert a.output_path in lines[0]
    assert not os.path.exists(prefix)


def test_one_step(runner: StepRunner, make_spec: MakeSpec, journal: list[str]) -> None:
    spec = make_spec("n", make_spec("dep"), fn=lambda path: [path] if step_lease().output_path == path else None)
    assert not check_cache(spec.output_path)
    assert runner.run_step(spec)
    assert not run_step(spec)
    assert check_cache(spec.output_path)
    assert check_cache(spec)
    assert journal == ["n"]
    assert Artifact.load(spec.output_path) == [spec.output_path], "a function sees its lease"
    bad = make_spec("bad", fn=fail)
    with pytest.raises(ValueError, match="bad"):
        runner.run_step(bad)
    for again in (runner.run_step, run_step):
        with pytest.raises(PreviousTaskFailedError):
            again(bad, force_run_failed=False)


def test_an_interrupt_leaves_true_statuses(runner: StepRunner, make_spec: MakeSpec, recorder: Recorder) -> None:
    go_on, started = threading.Event(), threading.Event()

    def work(_: str) -> None:
        started.set()
        go_on.wait(20)

    spec = make_spec("n", fn=work)

    def stream() -> Iterator[StepSpec]:
        yield spec
        started.wait(20)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(stream())
    assert isinstance(recorder.events[-1], RunEnded)
    assert recorder.events[-1].error == "KeyboardInterrupt"
    assert StatusFile(spec.output_path).has_active_lock()
    go_on.set()
    eventually(lambda: not StatusFile(spec.output_path).has_active_lock(), "the function has ended")
    assert StatusFile(spec.output_path).status == STATUS_FAILED


@pytest.mark.parametrize("comes_late", [False, True])
def test_of_two_specs_at_one_output_path_the_second_fails(
    comes_late: bool, runner: StepRunner, make_spec: MakeSpec, journal: list[str], prefix: str
) -> None:
    first = make_spec("a")

    def elsewhere(name: str, fn: Callable[[str], object] | None = first.fn) -> StepSpec:
        place = {"output_path_prefix": prefix, "override_output_path": first.output_path}
        return StepSpec(name=name, hash_attrs={"n": 1}, fn=fn, **place)  # type: ignore[arg-type]

    def stream() -> Iterator[StepSpec]:
        yield first
        if comes_late:
            eventually(lambda: runner.check_cache(first), "the first is there")
        yield from (elsewhere("a"), elsewhere("a", None), elsewhere("b"), elsewhere("a", fail))
        yield make_spec("c", first)

    with pytest.raises(StepFailed, match=r"2 step\(s\) failed:\n  b -> .*/a_\w+: Conflict: another step(.|\n)*  a -> "):
        runner.run(stream())
    assert sorted(journal) == ["a", "c"]
    assert check_cache(first)


def test_what_is_no_spec_is_refused(runner: StepRunner) -> None:
    with pytest.raises(InvalidRequest, match="'text' is a str, not a StepSpec"):
        runner.run(["text"])  # type: ignore[list-item]


def test_the_job_of_a_spec_that_fails_is_named(make_spec: MakeSpec, prefix: str, recorder: Recorder) -> None:
    spec = StepSpec(name="n", output_path_prefix=prefix, fn=fail, resources=ResourceConfig(cpu=1))
    with pytest.raises(StepFailed, match="ValueError: bad"):
        StepRunner([recorder]).run([spec])
    [end] = recorder.of(StepEnded)
    assert end.log.startswith("job ")


def test_of_many_failures_some_are_named_and_the_rest_is_counted(recorder: Recorder, make_spec: MakeSpec) -> None:
    runner = StepRunner([recorder], terms=StreamTerms(listed_failures=2))
    specs = [make_spec(f"s{number}", fn=fail) for number in range(5)]
    with pytest.raises(StepFailed) as failed:
        runner.run([*specs, make_spec("after", specs[0])])
    head, one, other, rest, left_out = str(failed.value).splitlines()
    assert head == "5 step(s) failed:"
    assert one.endswith("ValueError: bad")
    assert other.endswith("ValueError: bad")
    assert rest == "  and 3 more"
    assert left_out == "not run, because a dependency failed: 1 step(s)"


def test_an_unreadable_status(runner: StepRunner, make_spec: MakeSpec, recorder: Recorder, journal: list[str]) -> None:
    broken, fine = make_spec("broken"), make_spec("fine")
    Path(broken.output_path, ".executor_status").mkdir(parents=True)
    with pytest.raises(StepFailed, match="IsADirectoryError"):
        runner.run([broken, fine])
    assert recorder.ends() == {"broken": StepEnd.FAILED, "fine": StepEnd.SUCCEEDED}
    assert journal == ["fine"]


def test_forgotten_outputs_are_looked_at_again(recorder: Recorder, make_spec: MakeSpec, journal: list[str]) -> None:
    runner = StepRunner([recorder], terms=StreamTerms(remembered_outputs=1))
    a = make_spec("a")
    b = make_spec("b", a)
    runner.run([a, b, make_spec("c", a), make_spec("d", a, b)])
    assert sorted(journal) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("end", ["it is made", "the run ends first"])
def test_who_waits_for_another_run_goes_on_when_that_has_ended(
    runner: StepRunner, make_spec: MakeSpec, recorder: Recorder, journal: list[str], end: str
) -> None:
    spec = make_spec("a")
    other = open_step_lease(spec.output_path, "a")
    assert other.begin(force_run_failed=True)

    def specs() -> Iterator[StepSpec]:
        yield spec
        eventually(lambda: recorder.of(StepQueued), "the step is known")
        if end == "it is made":
            threading.Timer(0.05, other.end, [STATUS_SUCCESS]).start()
            return
        eventually(lambda: any(thread.name == "marin-lease-keeper" for thread in threading.enumerate()), "it waits")
        raise LookupError("no more specs")

    if end == "it is made":
        runner.run(specs())
        assert recorder.ends() == {"a": StepEnd.CACHED}
    else:
        with pytest.raises(LookupError, match="no more specs"):
            runner.run(specs())
        other.end(STATUS_SUCCESS)
        assert other.lost is False
    assert journal == []
