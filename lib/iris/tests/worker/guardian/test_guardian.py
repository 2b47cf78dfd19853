"""What a guardian does with what it is told and what happens: with a played runtime, and as a process of its own."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually, eventually_async
from iris.domain.usage import Usage
from iris.rpc.logformat import decode_all
from iris.worker.guardian import client
from iris.worker.guardian import guardian as guardian_module
from iris.worker.guardian.client import GuardianClient, attach
from iris.worker.guardian.guardian import FLUSH_S, Guardian
from iris.worker.guardian.launch import GuardianPaths
from iris.worker.guardian.protocol import VERSION
from iris.worker.guardian.reactor import Reactor
from iris.worker.processes import Exit, ProcessSpec, StartFailed
from rigging.errors import Conflict
from support.rigging.processes import is_gone


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
        self.specs: list[ProcessSpec] = []
        self.processes: dict[str, CommandProcess] = {}
        self.refusal: Exception | None = None
        self.sweeps = 0

    def start(self, spec: ProcessSpec, listener: Any) -> CommandProcess:
        if self.refusal is not None:
            raise self.refusal
        self.specs.append(spec)
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
        clocks = lambda: int(self.now * 1000), lambda: self.boot_ms
        self.guardian = Guardian(self.reactor, self.runtime, *clocks)  # type: ignore[arg-type]
        self.do = self.guardian.do
        monkeypatch.setattr(guardian_module.time, "monotonic", lambda: self.now)
        self.contact()

    def contact(self) -> None:
        self.do("contact", self.boot_ms)

    def ask(self, name: str = "a", **fields: Any) -> None:
        self.do("start", {"id": name, "argv": ["true"], "env": {}, "cwd": "/", **fields})

    def run(self, name: str = "a", **fields: Any) -> CommandProcess:
        self.ask(name, **fields)
        self.guardian.start_some()
        return self.runtime.processes[name]

    def end(self, *names: str, code: int = 0, signal: int = 0) -> None:
        for name in names or "a":
            self.runtime.processes[name].listener.on_exit(Exit(code, signal))

    def later(self, *seconds: float) -> None:
        for step in seconds:
            self.now += step
            self.boot_ms += round(step * 1000)
            self.reactor.turn(0)

    def news(self) -> list[list[Any]]:
        return [item[:2] for item in self.guardian.take_news()]

    def refused(self) -> list[list[Any]]:
        return [item[1:4] for item in self.guardian.take_news() if item[0] == "refused"]

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
        assert (bench.guardian.has_queue, bench.guardian.live_count) == (True, 10)
        bench.guardian.start_some()
        assert list(bench.runtime.processes) == [f"a{number}" for number in range(8)]
        bench.guardian.start_some()
        assert (len(bench.runtime.processes), bench.guardian.has_queue) == (10, False)
        bench.ask("a0")
        assert not bench.guardian.has_queue, "it is known"

    def test_users_start_in_turns(self, bench: Bench) -> None:
        for number in range(300):
            bench.ask(f"/bob/huge/{number}:0")
        for name in ("/carol/tiny/0:0", "/carol/tiny/1:0"):
            bench.ask(name)
        bench.guardian.start_some()
        assert list(bench.runtime.processes)[:5] == [
            "/bob/huge/0:0", "/carol/tiny/0:0", "/bob/huge/1:0", "/carol/tiny/1:0", "/bob/huge/2:0",
        ]  # fmt: skip

    def test_a_start_is_told_late_and_an_end_at_once(self, bench: Bench) -> None:
        bench.run()
        assert bench.due_in() == 0.05
        bench.end()
        bench.run("b")
        assert bench.due_in() == 0, "what is due sooner is not put off by what is due later"
        bench.end("b")
        assert bench.news() == [["over", "a"], ["over", "b"]], "the starts are not told besides"
        assert (bench.due_in(), bench.news(), bench.guardian.live_count) == (None, [], 0)

    @pytest.mark.parametrize(
        ("error", "why", "text"),
        [
            (StartFailed("no such program", 127), "command", "no such program"),
            (OSError(12, "no memory"), "host", "the host cannot start it: [Errno 12] no memory"),
            (ValueError("embedded null byte"), "host", "the host cannot start it: embedded null byte"),
        ],
    )
    def test_a_refusal_is_told_at_once_and_whose(self, bench: Bench, error: Exception, why: str, text: str) -> None:
        bench.runtime.refusal = error
        bench.ask()
        bench.guardian.start_some()
        assert bench.due_in() == 0
        assert bench.refused() == [["a", why, text]]
        assert bench.guardian.live_count == 0

    def test_what_makes_no_sense_is_passed_over(self, bench: Bench) -> None:
        process = bench.run()
        for request in (
            *(("start",), ("start", {"id": "b"}), ("start", {"id": "b", "argv": [], "env": {}, "cwd": "/"})),
            *(("start", 7), ("stop",), ("stop", "a", "soon"), ("contact", "now"), ("contact",)),
            *(("finish", None), ("dance", "a"), (7,)),
        ):
            bench.do(*request)
        assert (bench.guardian.live_count, bench.guardian.finishing, process.told) == (1, False, [])

    def test_orphans_are_looked_for_now_and_then_while_anything_runs(self, bench: Bench) -> None:
        bench.run()
        bench.run("b")
        bench.later(4.9)
        assert bench.runtime.sweeps == 0
        bench.later(0.1)
        assert bench.runtime.sweeps == 1
        bench.later(5)
        assert bench.runtime.sweeps == 2
        bench.end("a", "b")
        bench.later(5, 5)
        assert bench.runtime.sweeps == 3


JOIN = {"id": "exec 1", "attempt": "a", "argv": ["ls"], "streams": ["/tty"], "env": {"TERM": "xterm"}}


class TestCommandsInAttempts:
    def test_one_has_what_its_attempt_has_and_is_told_at_once(self, bench: Bench) -> None:
        bench.run("a", env={"A": "1"}, cwd="/work", log="/log", fence_ms=9, note={"n": 1}, run_as=[1000])
        bench.news()
        bench.do("join", JOIN)
        bench.guardian.start_some()
        assert bench.due_in() == 0
        spec = bench.runtime.specs[-1]
        assert (spec.owner, spec.argv, spec.env, spec.cwd) == ("exec 1", ("ls",), {"A": "1", "TERM": "xterm"}, "/work")
        assert spec.run_as is not None
        assert (spec.run_as.uid, spec.log, spec.note, spec.fence_ms, spec.dies_with_worker) == (1000, "", {}, 0, True)
        assert [fields["id"] for fields in bench.guardian.held()] == ["a"], "the next worker does not get it"

    def test_one_without_an_attempt_is_refused_as_the_worker_waits_for_a_word(self, bench: Bench) -> None:
        bench.do("join", JOIN)
        assert bench.refused() == [["exec 1", "stopped", "a is not running here"]]
        assert bench.guardian.live_count == 0

    def test_what_makes_no_sense_is_passed_over(self, bench: Bench) -> None:
        bench.run()
        for wrong in ({"argv": []}, {"streams": ["/in", "/out"]}, {"env": None}):
            bench.do("join", {**JOIN, **wrong})
        bench.guardian.start_some()
        assert list(bench.runtime.processes) == ["a"]


COMMON = {"argv": ["true"], "env": {"A": "1", "B": "1"}, "log_limit": 9, "note": {"replicas": 3}}


class TestWhatManyHaveInCommon:
    def test_it_is_told_once_and_each_adds_its_own(self, bench: Bench) -> None:
        bench.do("common", 1, COMMON)
        bench.do("run", 1, "a", "/work", "", {"B": "2"}, {"index": 0}, [["/t", "/s", "", ""]])
        bench.do("run", 1, "a", "/work", "", {}, {}, [])
        bench.do("run", 1, "b", "/work", "", {}, {})
        bench.guardian.start_some()
        first, second = bench.runtime.specs
        assert (first.owner, first.argv, first.env, first.cwd) == ("a", ("true",), {"A": "1", "B": "2"}, "/work")
        assert (first.note, first.log_limit) == ({"replicas": 3, "index": 0}, 9)
        assert [mount.target for mount in first.mounts] == ["/t"]
        assert (second.owner, second.env) == ("b", {"A": "1", "B": "1"})

    @pytest.mark.parametrize("own", [("/work", "", {"B": 7}, {}), ("/work",), ("/work", "", [], {})])
    def test_one_that_is_not_understood_is_refused_as_the_worker_waits_for_a_word(self, bench: Bench, own: Any) -> None:
        bench.do("common", 1, COMMON)
        bench.do("run", 1, "a", *own)
        ((name, why, _),) = bench.refused()
        assert (name, why) == ("a", "host")
        bench.guardian.start_some()
        assert bench.runtime.processes == {}

    def test_what_was_dropped_or_told_to_a_former_worker_is_not_known(self, bench: Bench) -> None:
        for number in (1, 2):
            bench.do("common", number, COMMON)
        bench.do("drop", 1)
        bench.do("run", 1, "a", "/", "", {}, {})
        bench.guardian.held()
        bench.do("run", 2, "b", "/", "", {}, {})
        bench.guardian.start_some()
        assert bench.runtime.processes == {}
        assert bench.guardian.live_count == 0

    def test_a_plain_end_is_told_in_short(self, bench: Bench) -> None:
        bench.run()
        bench.end(code=3, signal=9)
        assert bench.guardian.take_news() == [["over", "a", 100, 3, 9, 0, 1_000_000]]


class TestStops:
    @pytest.mark.parametrize(
        ("graces", "killed_after"),
        # A second stop counts when it is sooner, and puts nothing off when it is later.
        [({0: 2000}, 2.0), ({0: 2000, 0.1: 9000, 0.2: 500}, 0.7), ({0: 2000, 1.5: 1000}, 2.0)],
    )
    def test_the_shortest_grace_counts(self, bench: Bench, graces: dict[float, int], killed_after: float) -> None:
        process = bench.run()
        for tenth in range(120):
            if tenth / 10 in graces:
                bench.do("stop", "a", graces[tenth / 10])
            assert process.told == ["terminate", "kill"][: 1 + (tenth >= killed_after * 10)]
            bench.later(0.1)

    def test_it_is_carried_through_although_the_worker_leaves_and_not_beyond_the_end(self, bench: Bench) -> None:
        deaf, quick = bench.run("a", note={"a": 1}), bench.run("b", note={"a": 1})
        bench.do("stop", "a", 2000)
        bench.do("stop", "b", 2000, {"b": 2})
        assert [held["note"] for held in bench.guardian.held()] == [{"a": 1}, {"b": 2}]
        bench.guardian.worker_left()
        bench.end("b")
        bench.later(2)
        assert (deaf.told, quick.told) == (["terminate", "kill"], ["terminate"])

    def test_what_has_ended_or_is_not_there_is_not_ended(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        bench.do("stop", "none", 0)
        bench.do("forget", "none")
        assert caplog.text == "", "the worker's request and the end may cross: that is no nonsense"
        process = bench.run()
        bench.end()
        bench.do("stop", "a", 0, {"late": 1})
        assert process.told == []
        assert bench.guardian.held()[0]["note"] == {}

    def test_a_guardian_that_ends_stops_all_and_starts_nothing(self, bench: Bench) -> None:
        process = bench.run()
        bench.ask("stopped")
        bench.do("stop", "stopped", 0, {"why": "enough"})
        bench.ask("waits")
        bench.do("finish", 1000)
        assert bench.guardian.finishing
        assert process.told == ["terminate"]
        bench.ask("late")
        bench.guardian.start_some()
        assert list(bench.runtime.processes) == ["a"]
        never = "stopped before its start"
        assert bench.refused() == [
            *(
                ["stopped", "stopped", never],
                ["waits", "stopped", never],
                ["late", "stopped", "the guardian is exiting"],
            )
        ]
        assert bench.guardian.held()[1]["note"] == {"why": "enough"}


class TestWhatIsHeld:
    def test_ends_are_held_until_they_are_forgotten_and_what_runs_is_not(self, bench: Bench, tmp_path: Path) -> None:
        log = tmp_path / "log"
        process = bench.run(log=str(log))
        process.listener.on_output(False, b"line\n")
        bench.do("forget", "a")
        assert [held["id"] for held in bench.guardian.held()] == ["a"]
        bench.end()
        assert bench.guardian.held()[0]["end"]["code"] == 0
        bench.run("b")
        bench.end("b")
        for name in "aab":
            bench.do("forget", name)
        assert (bench.guardian.held(), bench.guardian.take_news()) == ([], []), "before it was told, too"
        assert not log.exists()

    def test_a_new_worker_is_told_all_and_then_only_what_is_new(self, bench: Bench, tmp_path: Path) -> None:
        log = str(tmp_path / "log")
        process = bench.run(log=log, note={"replicas": 3})
        process.listener.on_output(False, b"line\n")
        (started, (verb, name, size)) = bench.guardian.take_news()
        assert (started, verb, name) == (["started", "a", 100, 1_000_000], "grew", "a")
        assert bench.guardian.take_news() == []
        bench.now += 1
        bench.run("over")
        bench.end("over")
        bench.ask("waits")
        running, over, waits = bench.guardian.held()
        assert running == {
            **{"id": "a", "pid": 100, "log": log, "log_size": size, "at_ms": 1_000_000},
            **{"note": {"replicas": 3}, "refused": None, "end": None},
        }
        assert (over["pid"], over["at_ms"], over["end"]["code"], waits["pid"]) == (101, 1_001_000, 0, 0)
        assert (bench.guardian.news_due, bench.news()) == (None, [])
        process.listener.on_output(False, b"more\n")
        bench.guardian.start_some()
        assert bench.news() == [["grew", "a"], ["started", "waits"]]

    def test_what_served_the_worker_only_ends_with_it(self, bench: Bench) -> None:
        tool = bench.run("t", dies_with_worker=True)
        task = bench.run()
        bench.run("d", dies_with_worker=True)
        bench.end("d")
        assert [held["id"] for held in bench.guardian.held()] == ["a"], "it means nothing to the next worker"
        bench.guardian.worker_left()
        bench.later(0)
        assert (tool.told, task.told) == (["terminate", "kill"], [])
        bench.end("t")
        assert [held["id"] for held in bench.guardian.held()] == ["a"]
        assert bench.run("t", dies_with_worker=True) is not tool, "the next worker may have one of the same name"

    def test_an_unfinished_line_is_stored_a_moment_after_its_first_byte(self, bench: Bench, tmp_path: Path) -> None:
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
NO_CONTACT = "no contact with the controller for 10 s (its fence): killed before another attempt may start"


class TestTheFence:
    def test_what_has_a_fence_is_killed_once_when_contact_is_older_than_that(self, bench: Bench) -> None:
        fenced, free = bench.run(**FENCED), bench.run("b")
        bench.later(*[1] * 10)
        assert fenced.told == []
        bench.later(*[1] * 6)
        assert (fenced.told, free.told) == (["kill"], [])
        bench.end(signal=9)
        (end,) = [item[2] for item in bench.guardian.take_news() if item[0] == "ended"]
        assert end["fenced"] == NO_CONTACT

    def test_the_last_part_of_a_second_is_waited_for_and_no_more(self, bench: Bench) -> None:
        process = bench.run(fence_ms=250)
        bench.later(0.25)
        assert process.told == []
        bench.later(0.002)
        assert process.told == ["kill"]

    def test_the_clock_of_contact_goes_on_in_the_hosts_sleep_and_is_read_each_second(self, bench: Bench) -> None:
        process = bench.run(**FENCED)
        bench.boot_ms += 60_000
        bench.later(0.9)
        assert process.told == []
        bench.later(0.1)
        assert process.told == ["kill"]

    def test_each_contact_puts_it_off_and_an_older_one_does_not_bring_it_nearer(self, bench: Bench) -> None:
        process = bench.run(**FENCED)
        for _ in range(30):
            bench.later(1)
            bench.contact()
        bench.do("contact", 1)
        bench.later(9)
        assert process.told == []
        bench.do("contact", bench.boot_ms + 10**9)
        bench.later(*[1] * 12)
        assert process.told == ["kill"], "one of the future counts as one of now"

    def test_a_contact_after_a_long_sleep_saves_only_what_has_not_run_without_contact(self, bench: Bench) -> None:
        process = bench.run(**FENCED)
        bench.ask("waits", **FENCED)
        bench.boot_ms += 60_000
        bench.contact()
        assert process.told == ["kill"]
        bench.guardian.start_some()
        assert list(bench.runtime.processes) == ["a", "waits"]

    def test_beyond_it_nothing_is_started(self, bench: Bench) -> None:
        bench.later(10.001)
        bench.ask("fenced", **FENCED)
        bench.ask("free")
        bench.guardian.start_some()
        assert list(bench.runtime.processes) == ["free"]
        assert bench.refused() == [["fenced", "fenced", f"not started: {NO_CONTACT}"]]
        bench.contact()
        bench.run("again", **FENCED)

    def test_nobody_is_woken_for_a_fence_that_is_over(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        bench.run("b")
        bench.run(**FENCED)
        bench.end()
        bench.later(1)
        with monkeypatch.context() as patch:
            waits: list[float] = []
            patch.setattr(bench.reactor, "call_later", lambda seconds, work: waits.append(seconds))
            bench.later(1, 2)
            assert waits == []
        bench.contact()
        again = bench.run("c", **FENCED)
        bench.later(*[1] * 12)
        assert again.told == ["kill"]


class Seen:
    """Hears of one command."""

    def __init__(self) -> None:
        self.pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.size = 0
        self.grew = asyncio.Event()

    def on_started(self, pid: int) -> None:
        self.pid.set_result(pid)

    def on_refused(self, error: StartFailed) -> None:
        self.end.set_exception(error)

    def on_usage(self, usage: Usage) -> None:
        pass

    def on_log(self, size: int) -> None:
        self.size = size
        self.grew.set()

    def on_exit(self, exit: Exit) -> None:
        self.end.set_result(exit)


class Place:
    """A work directory with a guardian of its own."""

    linger_s = 30.0

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = GuardianPaths(root)

    async def attach(self) -> GuardianClient:
        return await attach(self.paths, linger_s=self.linger_s)

    async def start(self, guardian: GuardianClient, name: str, script: str, **options: Any) -> Seen:
        env = {"PATH": os.environ["PATH"], "IRIS_ATTEMPT_ID": name, "IRIS_WORK_DIR": str(self.root)}
        argv = options.pop("argv", ("sh", "-c", script))
        seen = Seen()
        guardian.start(ProcessSpec(name, argv, env, str(self.root), log=self.log(name), **options), seen)
        return seen

    def log(self, name: str) -> str:
        return str(self.root / f"{name}.log")

    def words(self, name: str, seen: Seen) -> list[bytes]:
        return [record.data for record in decode_all(Path(self.log(name)).read_bytes()[: seen.size])]

    def pid(self) -> int:
        return int(self.paths.lock.read_text())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    # Longer than the 107 bytes that a socket's name may have.
    place = Place(tmp_path / ("d" * 120))
    place.root.mkdir()
    yield place
    with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
        os.kill(place.pid(), signal.SIGTERM)
        eventually(lambda: is_gone(place.pid()), "the guardian has ended")


async def soon(condition: Callable[[], bool]) -> None:
    await eventually_async(condition, "it has come to that")


NEXT_RELEASE = """
import sys
from iris.worker.guardian import __main__, launch, server
launch.build_of = __main__.build_of = lambda folder: "another"
server.VERSION += int(sys.argv[1])
sys.exit(__main__.main(["--work-dir", sys.argv[2]]))
"""


@pytest.mark.process
class TestProcess:
    @pytest.mark.parametrize("versions_apart", [0, 1])
    async def test_a_guardian_of_another_release_is_taken_over_if_it_speaks_this_version_and_else_left_alone(
        self, place: Place, versions_apart: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        argv = [sys.executable, "-c", NEXT_RELEASE, str(versions_apart), str(place.root)]
        await asyncio.to_thread(subprocess.run, argv, check=True)
        with monkeypatch.context() as of_that_release:
            of_that_release.setattr(client, "VERSION", VERSION + versions_apart)
            of_that_release.setattr(client, "build_of", lambda folder: "another")
            first = await place.attach()
        seen = await place.start(first, "a", "echo one; exec sleep 1000")
        await seen.grew.wait()
        over = await place.start(first, "over", "exit 3")
        await over.end
        first.close()
        if versions_apart:
            with pytest.raises(Conflict, match="the guardian is incompatible: the worker uses protocol version"):
                await place.attach()
            assert not is_gone(await seen.pid), "nothing is killed"
            return
        second, again, end = await place.attach(), Seen(), Seen()
        assert second.guardian_id == first.guardian_id
        assert {held.owner: held.pid for held in second.held()}["a"] == await seen.pid
        second.take_up("a", again)
        second.take_up("over", end)
        assert (await end.end).code == 3
        second.ask("a verb of a later release", {"x": 1})
        second.ask("start", {"id": "no argv"})
        second.ask("stop", "a", 0, None)
        assert (await again.end).signal == signal.SIGTERM
        assert place.words("a", again) == [b"one"]

    async def test_without_a_worker_it_ends_after_its_time_and_not_before_the_last_task(self, place: Place) -> None:
        place.linger_s = 0.2
        guardian = await place.attach()
        seen = await place.start(guardian, "a", f"sleep 0.6; touch {place.root}/over")
        await seen.pid
        pid = place.pid()
        guardian.close()
        await soon(lambda: is_gone(pid))
        assert (place.root / "over").exists()
        assert not place.paths.socket.exists()

    async def test_sigterm_ends_it_with_all_its_tasks_and_more_of_them_are_no_error(self, place: Place) -> None:
        guardian = await place.attach()
        daemon = "env -i setsid sleep 1000 >/dev/null 2>&1 & echo $!"
        seen = await place.start(guardian, "a", f"trap '' TERM; {daemon}; while :; do sleep 0.05; done")
        await seen.grew.wait()
        (stray,) = map(int, place.words("a", seen))
        pid = place.pid()

        def pester() -> bool:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            return is_gone(pid)

        await soon(pester)
        await guardian.lost
        assert all(map(is_gone, (await seen.pid, stray)))
        assert "Exception" not in place.paths.log.read_text()

    async def test_what_a_killed_guardian_left_is_killed_by_the_next(self, place: Place) -> None:
        guardian = await place.attach()
        script = "env -i setsid sleep 1000 >/dev/null 2>&1 & echo $!; exec sleep 1000"
        seen = await place.start(guardian, "a", script)
        await seen.grew.wait()
        (stray,) = map(int, place.words("a", seen))
        pid = await seen.pid
        os.kill(place.pid(), signal.SIGKILL)
        await guardian.lost
        assert not is_gone(stray)
        assert (await place.attach()).guardian_id != guardian.guardian_id
        await soon(lambda: is_gone(pid) and is_gone(stray))

    async def test_it_is_small(self, place: Place) -> None:
        proc = Path(f"/proc/{(await place.attach()).pid}")
        maps = (proc / "maps").read_text()
        assert "grpc" not in maps
        assert "_asyncio" not in maps
        assert int((proc / "status").read_text().split("VmRSS:")[1].split()[0]) < 30_000
