"""What a guardian does with what it is told and what happens, without a process: it has a runtime that is played."""

from collections.abc import Iterator
from typing import Any

import pytest

from iris.worker.guardian import guardian as guardian_module
from iris.worker.guardian.guardian import FLUSH_S, Guardian
from iris.worker.guardian.reactor import Reactor
from iris.worker.processes import Exit, ProcessSpec, StartFailed


class CommandProcess:
    """A process that does nothing."""

    def __init__(self, pid: int, listener: Any) -> None:
        self.pid = pid
        self.listener = listener
        self.told: list[str] = []

    def terminate(self) -> None:
        self.told.append("terminate")

    def kill(self) -> None:
        self.told.append("kill")


class Runtime:
    def __init__(self) -> None:
        self.processes: dict[str, CommandProcess] = {}
        self.refusal: Exception | None = None
        self.sweeps = 0

    def start(self, spec: ProcessSpec, listener: Any) -> CommandProcess:
        if self.refusal is not None:
            raise self.refusal
        self.processes[spec.owner] = CommandProcess(100 + len(self.processes), listener)
        return self.processes[spec.owner]

    def sweep(self) -> bool:
        self.sweeps += 1
        return True


class Bench:
    """A guardian whose clocks stand still until the test moves them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.boot_ms = 50_000
        self.runtime = Runtime()
        self.reactor = Reactor(lambda: self.now)
        self.guardian = Guardian(
            self.reactor,
            self.runtime,
            lambda: int(self.now * 1000),
            lambda: self.boot_ms,  # type: ignore[arg-type]
        )
        monkeypatch.setattr(guardian_module.time, "monotonic", lambda: self.now)
        self.contact()

    def contact(self) -> None:
        self.guardian.do("contact", self.boot_ms)

    def ask(self, name: str = "a", **fields: Any) -> None:
        self.guardian.do("start", {"id": name, "argv": ["true"], "env": {}, "cwd": "/", **fields})

    def run(self, name: str = "a", **fields: Any) -> CommandProcess:
        self.ask(name, **fields)
        self.guardian.start_some()
        return self.runtime.processes[name]

    def end(self, name: str = "a") -> None:
        self.runtime.processes[name].listener.on_exit(Exit(0, 0))

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.boot_ms += round(seconds * 1000)
        self.reactor.turn(0)

    def news(self) -> list[list[Any]]:
        return [item[:2] for item in self.guardian.take_news()]

    def due_in(self) -> float | None:
        return None if self.guardian.news_due is None else round(self.guardian.news_due - self.now, 6)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(monkeypatch)
    yield made
    made.reactor.close()


class TestStarts:
    def test_each_is_started_once_a_few_in_a_turn_in_their_order(self, bench: Bench) -> None:
        for number in range(10):
            bench.ask(f"a{number}")
            bench.ask(f"a{number}")
        assert bench.guardian.has_queue
        assert bench.guardian.live_count == 10
        bench.guardian.start_some()
        assert list(bench.runtime.processes) == [f"a{number}" for number in range(8)]
        bench.guardian.start_some()
        assert len(bench.runtime.processes) == 10
        assert not bench.guardian.has_queue
        bench.ask("a0")
        assert not bench.guardian.has_queue, "it is known"

    def test_a_start_is_told_late_and_an_end_at_once(self, bench: Bench) -> None:
        bench.run()
        assert bench.due_in() == 0.05
        bench.end()
        assert bench.due_in() == 0
        assert bench.news() == [["ended", "a"]], "the start is not told besides"
        assert (bench.due_in(), bench.news(), bench.guardian.live_count) == (None, [], 0)

    def test_what_is_due_sooner_is_not_put_off_by_what_is_due_later(self, bench: Bench) -> None:
        bench.run("a", tail_bytes=9)
        bench.end("a")
        bench.run("b")
        assert bench.due_in() == 0

    def test_a_refusal_is_told_at_once_with_whose_fault_it_is(self, bench: Bench) -> None:
        for error, why, text in (
            (StartFailed("no such program", 127), "command", "no such program"),
            (
                OSError(12, "Cannot allocate memory"),
                "host",
                "the host cannot start it: [Errno 12] Cannot allocate memory",
            ),
            (ValueError("embedded null byte"), "host", "the host cannot start it: embedded null byte"),
        ):
            bench.runtime.refusal = error
            bench.ask(text)
            bench.guardian.start_some()
            assert bench.due_in() == 0
            refused = bench.guardian.take_news()[-1]
            assert refused[:4] == ["refused", text, why, text]
        assert bench.guardian.live_count == 0

    def test_what_makes_no_sense_is_passed_over(self, bench: Bench) -> None:
        for request in (
            ("start",),
            ("start", {"id": "a"}),
            ("start", {"id": "a", "argv": [], "env": {}, "cwd": "/"}),
            ("start", 7),
            ("stop",),
            ("stop", "a", "soon"),
            ("contact", "now"),
            ("contact",),
            ("finish", None),
            ("dance", "a"),
            (7,),
        ):
            bench.guardian.do(*request)
        assert (bench.guardian.live_count, bench.guardian.finishing) == (0, False)
        bench.run()
        bench.guardian.do("stop", "a", "soon")
        assert bench.runtime.processes["a"].told == []

    def test_orphans_are_looked_for_now_and_then_while_anything_runs(self, bench: Bench) -> None:
        bench.run()
        bench.run("b")
        bench.later(4.9)
        assert bench.runtime.sweeps == 0
        bench.later(0.1)
        assert bench.runtime.sweeps == 1
        bench.later(5)
        assert bench.runtime.sweeps == 2
        for name in "ab":
            bench.end(name)
        bench.later(5)
        bench.later(5)
        assert bench.runtime.sweeps == 3


COMMON = {"argv": ["true"], "env": {"A": "1", "B": "1"}, "log_limit": 9, "note": {"replicas": 3}}


class TestWhatManyHaveInCommon:
    def test_it_is_told_once_and_each_adds_its_own(self, bench: Bench) -> None:
        specs: list[ProcessSpec] = []
        start = bench.runtime.start
        bench.runtime.start = lambda spec, listener: specs.append(spec) or start(spec, listener)  # type: ignore[method-assign, func-returns-value]
        bench.guardian.do("common", 1, COMMON)
        bench.guardian.do("run", 1, "a", "/work", "", {"B": "2"}, {"index": 0}, [["/t", "/s", "", ""]])
        bench.guardian.do("run", 1, "a", "/work", "", {}, {}, [])
        bench.guardian.do("run", 1, "b", "/work", "", {}, {})
        bench.guardian.start_some()
        first, second = specs
        assert (first.owner, first.argv, first.env, first.cwd) == ("a", ("true",), {"A": "1", "B": "2"}, "/work")
        assert (first.note, first.log_limit) == ({"replicas": 3, "index": 0}, 9)
        assert [mount.target for mount in first.mounts] == ["/t"]
        assert (second.owner, second.env) == ("b", {"A": "1", "B": "1"})

    @pytest.mark.parametrize("own", [("/work", "", {"B": 7}, {}), ("/work",), ("/work", "", [], {})])
    def test_one_that_is_not_understood_is_refused_as_the_worker_waits_for_a_word(self, bench: Bench, own: Any) -> None:
        bench.guardian.do("common", 1, COMMON)
        bench.guardian.do("run", 1, "a", *own)
        (refused,) = [item for item in bench.guardian.take_news() if item[0] == "refused"]
        assert refused[1:3] == ["a", "host"]
        bench.guardian.start_some()
        assert bench.runtime.processes == {}

    def test_what_was_dropped_or_told_to_a_former_worker_is_not_known(self, bench: Bench) -> None:
        for number in (1, 2):
            bench.guardian.do("common", number, COMMON)
        bench.guardian.do("drop", 1)
        bench.guardian.do("run", 1, "a", "/", "", {}, {})
        bench.guardian.held()
        bench.guardian.do("run", 2, "b", "/", "", {}, {})
        bench.guardian.start_some()
        assert bench.runtime.processes == {}
        assert bench.guardian.live_count == 0

    def test_a_plain_end_is_told_in_short_where_that_is_understood(self, bench: Bench) -> None:
        bench.run()
        bench.runtime.processes["a"].listener.on_exit(Exit(3, 9))
        assert bench.guardian.take_news(2) == [["over", "a", 100, 3, 9, 0, 1_000_000]]
        tool = bench.run("tool", tail_bytes=9)
        tool.listener.on_output(True, b"words")
        bench.end("tool")
        assert [item[0] for item in bench.guardian.take_news(2)] == ["ended"]


class TestStops:
    def test_it_is_asked_first_and_killed_after_its_grace(self, bench: Bench) -> None:
        process = bench.run()
        bench.guardian.do("stop", "a", 2000)
        assert process.told == ["terminate"]
        bench.later(1.9)
        assert process.told == ["terminate"]
        bench.later(0.1)
        assert process.told == ["terminate", "kill"]

    def test_a_second_stop_counts_when_it_is_sooner(self, bench: Bench) -> None:
        process = bench.run()
        bench.guardian.do("stop", "a", 2000)
        bench.guardian.do("stop", "a", 9000)
        bench.guardian.do("stop", "a", 500)
        assert process.told == ["terminate"], "it is asked once"
        bench.later(0.5)
        assert process.told == ["terminate", "kill"]
        bench.later(10)
        assert process.told == ["terminate", "kill"], "the later times are given up"

    def test_a_second_stop_puts_the_end_of_the_first_ones_grace_not_off(self, bench: Bench) -> None:
        process = bench.run()
        bench.guardian.do("stop", "a", 2000)
        bench.later(1.5)
        bench.guardian.do("stop", "a", 1000)
        bench.later(0.5)
        assert process.told == ["terminate", "kill"]

    def test_one_that_has_not_started_never_does(self, bench: Bench) -> None:
        bench.ask()
        bench.guardian.do("stop", "a", 0, {"why": "enough"})
        assert bench.guardian.take_news()[-1][:4] == ["refused", "a", "stopped", "it was stopped before it started"]
        bench.guardian.start_some()
        assert bench.runtime.processes == {}
        assert bench.guardian.held()[0]["note"] == {"why": "enough"}

    def test_a_stop_may_change_what_the_next_worker_is_to_know(self, bench: Bench) -> None:
        bench.run(note={"a": 1})
        bench.guardian.do("stop", "a", 5000)
        assert bench.guardian.held()[0]["note"] == {"a": 1}
        bench.guardian.do("stop", "a", 5000, {"b": 2})
        assert bench.guardian.held()[0]["note"] == {"b": 2}

    def test_what_is_not_there_or_has_ended_is_not_stopped(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.guardian.do("stop", "none", 0)
        bench.guardian.do("forget", "none")
        assert caplog.text == "", "the worker's request and the end may cross: that is no nonsense"
        process = bench.run()
        bench.end()
        bench.guardian.do("stop", "a", 0, {"late": 1})
        assert process.told == []
        assert bench.guardian.held()[0]["note"] == {}

    def test_an_end_before_the_grace_is_over_kills_nobody(self, bench: Bench) -> None:
        process = bench.run()
        bench.guardian.do("stop", "a", 2000)
        bench.end()
        bench.later(5)
        assert process.told == ["terminate"]

    def test_a_guardian_that_ends_stops_all_and_starts_nothing(self, bench: Bench) -> None:
        process = bench.run()
        bench.ask("waits")
        bench.guardian.do("finish", 1000)
        assert bench.guardian.finishing
        assert process.told == ["terminate"]
        bench.ask("late")
        bench.guardian.start_some()
        assert list(bench.runtime.processes) == ["a"]
        refused = [item[1:4] for item in bench.guardian.take_news() if item[0] == "refused"]
        assert refused == [
            ["waits", "stopped", "it was stopped before it started"],
            ["late", "stopped", "the guardian is ending"],
        ]


class TestWhatIsHeld:
    def test_ends_are_held_until_they_are_forgotten_and_what_runs_is_not_forgotten(
        self, bench: Bench, tmp_path
    ) -> None:
        log = tmp_path / "log"
        process = bench.run(log=str(log))
        process.listener.on_output(False, b"line\n")
        bench.guardian.do("forget", "a")
        assert [held["id"] for held in bench.guardian.held()] == ["a"]
        bench.end()
        assert bench.guardian.held()[0]["end"]["code"] == 0
        bench.guardian.do("forget", "a")
        bench.guardian.do("forget", "a")
        assert (bench.guardian.held(), bench.guardian.take_news()) == ([], [])
        assert not log.exists()

    def test_what_is_forgotten_before_it_was_told_is_not_told(self, bench: Bench) -> None:
        bench.run()
        bench.end()
        bench.guardian.do("forget", "a")
        assert bench.guardian.take_news() == []

    def test_a_new_worker_is_told_all_and_nothing_of_it_again(self, bench: Bench) -> None:
        bench.run()
        assert [held["pid"] for held in bench.guardian.held()] == [100]
        assert (bench.guardian.news_due, bench.news()) == (None, [])

    def test_a_new_worker_is_not_told_again_of_ends_that_came_before_it(self, bench: Bench) -> None:
        bench.run()
        bench.end()
        assert bench.guardian.held()[0]["end"] is not None
        bench.run("b")
        assert bench.news() == [["started", "b"]]

    def test_what_served_the_worker_only_ends_with_it(self, bench: Bench) -> None:
        tool = bench.run("tool", dies_with_worker=True)
        task = bench.run("task")
        bench.run("done", dies_with_worker=True)
        bench.end("done")
        assert [held["id"] for held in bench.guardian.held()] == ["task"], "it means nothing to the next worker"
        bench.guardian.worker_left()
        bench.later(0)
        assert tool.told == ["terminate", "kill"]
        assert task.told == []
        bench.end("tool")
        assert [held["id"] for held in bench.guardian.held()] == ["task"]
        assert bench.run("tool", dies_with_worker=True) is not tool, "the next worker may have one of the same name"

    def test_an_unfinished_line_is_stored_a_moment_after_its_first_byte(self, bench: Bench, tmp_path) -> None:
        process = bench.run(log=str(tmp_path / "log"))
        bench.news()
        process.listener.on_output(False, b"whole\n")
        assert bench.due_in() == 0.004
        whole = bench.guardian.take_news()[0][2]
        bench.later(FLUSH_S)
        assert bench.due_in() is None, "nothing waits"
        process.listener.on_output(False, b"50%")
        bench.guardian.take_news()
        bench.later(FLUSH_S / 2)
        process.listener.on_output(False, b" 60%")
        assert bench.guardian.take_news() == []
        bench.later(FLUSH_S / 2 + 0.001)
        (grown,) = bench.guardian.take_news()
        assert grown[:2] == ["grew", "a"]
        assert grown[2] > whole
        bench.later(FLUSH_S)
        assert bench.due_in() is None, "one look is enough for both"


FENCED = {"fence_ms": 10_000}


class TestTheFence:
    def test_what_has_a_fence_is_killed_when_contact_is_older_than_that(self, bench: Bench) -> None:
        fenced, free = bench.run("fenced", **FENCED), bench.run("free")
        for _ in range(10):
            bench.later(1)
        assert fenced.told == []
        bench.later(1)
        assert (fenced.told, free.told) == (["kill"], [])
        for _ in range(5):
            bench.later(1)
        assert fenced.told == ["kill"], "once"
        fenced.listener.on_exit(Exit(0, 9))
        (end,) = [item[2] for item in bench.guardian.take_news() if item[0] == "ended"]
        assert end["fenced"] == (
            "there was no contact with the controller for 10 s (its fence); it ends before another may begin"
        )

    def test_it_is_looked_at_each_second_and_at_the_next_deadline_whatever_else_runs(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waits: list[float] = []
        call_later = bench.reactor.call_later

        def noting(seconds: float, work: Any) -> Any:
            waits.append(seconds)
            return call_later(seconds, work)

        bench.run("free")
        bench.end("free")
        bench.run("free too")
        monkeypatch.setattr(bench.reactor, "call_later", noting)
        bench.run("fenced", **FENCED)
        bench.run("later", fence_ms=20_000)
        assert waits == [1.0]
        for _ in range(9):
            bench.later(1.0)
        bench.later(0.75)
        bench.later(0.25)
        fences = [wait for wait in waits if wait != 5.0]
        assert fences[-2:] == [1.0, 0.001], "ten seconds are not over before their last moment"
        assert set(fences) == {1.0, 0.001}

    def test_the_last_part_of_a_second_is_waited_for_and_no_more(self, bench: Bench) -> None:
        process = bench.run(fence_ms=250)
        bench.later(0.25)
        assert process.told == []
        bench.later(0.002)
        assert process.told == ["kill"]

    def test_each_contact_puts_it_off_and_an_older_one_does_not_bring_it_nearer(self, bench: Bench) -> None:
        process = bench.run(**FENCED)
        for _ in range(30):
            bench.later(1)
            bench.contact()
        bench.guardian.do("contact", 1)
        bench.later(9)
        assert process.told == []

    def test_a_contact_of_the_future_counts_as_one_of_now(self, bench: Bench) -> None:
        process = bench.run(**FENCED)
        bench.guardian.do("contact", bench.boot_ms + 10**9)
        for _ in range(12):
            bench.later(1)
        assert process.told == ["kill"]

    def test_a_contact_after_a_long_sleep_saves_nobody(self, bench: Bench) -> None:
        process = bench.run(**FENCED)
        bench.boot_ms += 60_000
        bench.contact()
        assert process.told == ["kill"]

    def test_one_that_waits_for_its_start_when_the_host_wakes_is_saved_by_a_contact(self, bench: Bench) -> None:
        bench.ask(**FENCED)
        bench.boot_ms += 60_000
        bench.contact()
        bench.guardian.start_some()
        assert list(bench.runtime.processes) == ["a"], "nothing of it has run without contact"

    def test_beyond_it_nothing_is_started(self, bench: Bench) -> None:
        bench.later(10.001)
        bench.ask("fenced", **FENCED)
        bench.ask("free")
        bench.guardian.start_some()
        assert list(bench.runtime.processes) == ["free"]
        refused = next(item for item in bench.guardian.take_news() if item[0] == "refused")
        assert refused[1:3] == ["fenced", "fenced"]
        assert refused[3].startswith("not started: there was no contact with the controller for 10 s")
        bench.contact()
        bench.run("again", **FENCED)

    def test_nobody_is_woken_for_a_fence_that_is_over(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        bench.run("free")
        bench.run("fenced", **FENCED)
        bench.end("fenced")
        bench.later(1)
        waits: list[float] = []
        monkeypatch.setattr(bench.reactor, "call_later", lambda seconds, work: waits.append(seconds))
        bench.later(1)
        bench.later(2)
        assert waits == []

    def test_it_is_watched_again_when_the_next_with_a_fence_starts(self, bench: Bench) -> None:
        bench.run("first", **FENCED)
        bench.end("first")
        for _ in range(5):
            bench.later(1)
        bench.contact()
        second = bench.run("second", **FENCED)
        for _ in range(12):
            bench.later(1)
        assert second.told == ["kill"]
