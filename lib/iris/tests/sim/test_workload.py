"""The figures of tiny workloads, computed by hand."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.sim.cli import main
from iris.sim.workload.distributions import draw_workload
from iris.sim.workload.fleet import fleet_of_options, read_fleet
from iris.sim.workload.report import Figures, figures_of, table
from iris.sim.workload.simulate import simulate
from iris.sim.workload.trace_file import read_trace
from rigging.errors import InvalidRequest

HEAD = "submit_s,user,band,tasks,cpu,duration_s"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def run(path: Path, *fleet: str) -> Figures:
    return figures_of(simulate(read_trace(path), fleet_of_options(fleet)))


def test_a_queue_on_one_host(write: Write) -> None:
    """a has both cores until 100 s; then the two tasks of b run side by side until 150 s."""
    figures = run(write("t.csv", HEAD, "0,ann,batch,1,2,100", "10,bob,batch,2,1,50"), "1:cpu=2")
    assert figures.hours == pytest.approx(150 / 3600)
    assert (figures.jobs, figures.tasks, figures.ended_tasks, figures.preemptions) == (2, 3, 3, {})
    assert figures.cpu_utilisation == pytest.approx(1.0)
    assert figures.cpu_stranded == 0.0
    assert figures.device_utilisation is None
    wait = figures.wait_by_band["batch"]
    assert (wait.tasks, wait.p50, wait.p95, wait.max, wait.never_started) == (3, 90.0, 90.0, 90.0, 0)
    assert figures.wait_by_user["ann"].max == 0.0
    assert list(figures.wait_by_user) == ["ann", "bob"]


def test_cores_that_are_free_on_two_hosts_do_not_help_who_needs_them_on_one(write: Write) -> None:
    """Each host has 1 of 3 cores left for 100 s, and a task waits for 2: 2 of 6 cores are stranded half the time."""
    figures = run(write("t.csv", HEAD, "0,ann,,2,2,100", "0,ann,,1,2,100"), "2:cpu=3")
    assert figures.hours == pytest.approx(200 / 3600)
    assert figures.cpu_stranded == pytest.approx(1 / 6)
    assert figures.cpu_utilisation == pytest.approx(0.5)


def test_what_is_preempted_starts_anew(write: Write) -> None:
    """Preempted at 40 s, gone at 45 s, the urgent one until 55 s, and the whole 100 s again."""
    figures = run(write("t.csv", HEAD, "0,ann,batch,1,2,100", "40,bob,production,1,2,10"), "1:cpu=2")
    assert figures.hours == pytest.approx(155 / 3600)
    assert figures.preemptions == {"batch": 1}
    assert figures.lost_core_hours == pytest.approx(2 * 40 / 3600)
    assert figures.wait_by_band["production"].max == 5.0
    assert figures.wait_by_band["batch"].max == 0.0
    assert figures.cpu_utilisation == pytest.approx(1.0)


def test_gangs_take_whole_slices(write: Write) -> None:
    """Two slices: the first two gangs run at once, the third when a slice comes free."""
    head = f"{HEAD},device,devices,group_by"
    lines = [f"{at},ann,,2,1,60,tpu v5p-16,4,tpu-name" for at in (0, 0, 10)]
    figures = run(write("t.csv", head, *lines), "2x2:cpu=8,device=tpu v5p-16,devices=4")
    assert figures.wait_by_user["ann"].max == 50.0
    assert figures.hours == pytest.approx(120 / 3600)
    assert figures.device_utilisation == pytest.approx((16 * 60 + 8 * 60) / (16 * 120))
    assert figures.device_stranded == 0.0


def test_what_can_never_run_and_what_never_did_are_told(write: Write) -> None:
    path = write("t.csv", HEAD, "0,ann,,1,64,10", "0,bob,,1,2,7200", "5,bob,,1,2,10")
    outcome = simulate(read_trace(path), fleet_of_options(["1:cpu=2"]), until_s=3600)
    figures = figures_of(outcome)
    assert (figures.refused, figures.tasks, figures.ended_tasks) == (1, 2, 0)
    assert outcome.refused == [f"{path}, line 2: needs 64 cores; the largest worker (g1-0) has 2"]
    assert (figures.wait_by_user["bob"].never_started, figures.wait_by_user["bob"].max) == (1, 3595.0)
    assert "needs 64 cores" in table(figures, outcome)


FLEET = ["--fleet", "1:cpu=2"]


GOOD = [HEAD, "0,ann,,1,1,1"]


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        ([HEAD, "0,ann,,1,two,10"], FLEET, "t.csv, line 2: cpu is 'two'; it must be a number of at least 0"),
        ([*GOOD, "-3,ann,,1,1,10"], FLEET, "t.csv, line 3: submit_s is '-3'; it must be a number of at least 0"),
        ([HEAD, "0,ann,,1.5,1,10"], FLEET, "t.csv, line 2: tasks is '1.5'; it must be a whole number"),
        ([HEAD, "0,ann,urgent,1,1,10"], FLEET, "band is 'urgent'; it must be one of production, interactive, batch"),
        ([HEAD, "0,a/b,,1,1,10"], FLEET, "line 2: user: 'a/b' is not a valid name of a job or user"),
        ([HEAD, "0,ann,,1,1,10,9"], FLEET, "line 2: more values than the 6 columns"),
        ([HEAD, "0,ann,,1,1,nan"], FLEET, "line 2: duration_s is 'nan'"),
        (["submit_s,user,cpu"], FLEET, "line 1: column 'duration_s' is missing"),
        ([f"{HEAD},colour"], FLEET, "line 1: column 'colour' is unknown; known are submit_s, user"),
        ([HEAD], FLEET, "there is no job in it"),
        ([f"{HEAD},device", "0,ann,,1,1,10,H100"], FLEET, "device is 'H100'; it must begin with gpu or tpu"),
        (GOOD, ["--fleet", "ten hosts"], "--fleet 'ten hosts' is not of the form [SLICESx]HOSTS:name=value"),
        (GOOD, ["--fleet", "10:cpu"], "'cpu' is not name=value"),
        (GOOD, ["--fleet", "10:memory_gib=4"], "cpu is missing"),
        (GOOD, ["--fleet", "10:cpu=4,cores=4"], "'cores' is unknown; known are name, hosts"),
        (GOOD, ["--fleet", "1:cpu=4,name=a"] * 2, "two hosts of the fleet have the same name"),
        (GOOD, [], "give the hosts by one of --fleet-file FILE.yaml and --fleet"),
        (GOOD, [*FLEET, "--workload", "x.yaml"], "give the jobs by one of --trace FILE.csv and --workload"),
        (None, FLEET, "t.csv: cannot be read: [Errno 2] No such file"),
    ],
)
def test_a_bad_line_or_option_is_named(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path, lines: list[str] | None, arguments: list[str],
    message: str,
) -> None:  # fmt: skip
    path = tmp_path / "t.csv" if lines is None else write("t.csv", *lines)
    assert main(["--trace", str(path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_json_has_the_figures(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trace", str(write("t.csv", HEAD, "0,ann,batch,1,2,100")), "--fleet", "1:cpu=4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cpu_utilisation"] == pytest.approx(0.5)
    assert found["wait_by_band"]["batch"] == {"tasks": 1, "never_started": 0, "p50": 0.0, "p95": 0.0, "max": 0.0}


def test_a_fleet_file_makes_slices_with_their_attributes(write: Write) -> None:
    groups = ["groups:", "- {name: t, slices: 2, hosts: 2, cpu: 4, device: tpu v5p-16, devices: 4}"]
    machines = read_fleet(write("f.yaml", *groups, "- {name: c, hosts: 3, cpu: 8, attributes: {zone: a}}"))
    assert [machine.name for machine in machines] == ["t-0-0", "t-0-1", "t-1-0", "t-1-1", "c-0", "c-1", "c-2"]
    assert machines[3].attributes == {"tpu-name": "t-1", "tpu-worker-id": "1"}
    assert machines[4].attributes == {"zone": "a"}
    with pytest.raises(InvalidRequest, match=r"bad.yaml:\d: "):
        read_fleet(write("bad.yaml", "groups: [}"))


WORKLOAD = """
hours: 10
classes:
- {name: many, per_hour: 20, users: [ann, bob], cpu: 1, duration_s: {exponential: {mean: 60}}}
- {name: big, per_hour: 1, users: eve, band: batch, tasks: {uniform: {low: 2, high: 4}}, cpu: 2, duration_s: 100}
"""


def test_a_drawn_workload_is_the_same_for_the_same_seed_and_has_the_means_asked_for(write: Write) -> None:
    path = write("w.yaml", WORKLOAD)
    first, again, other = draw_workload(path, 1), draw_workload(path, 1), draw_workload(path, 2)
    assert first == again != other
    many = [arrival for seed in range(20) for arrival in draw_workload(path, seed) if arrival.user != "eve"]
    assert len(many) == pytest.approx(20 * 20 * 10, rel=0.06)  # 4,000 arrivals: a deviation of 63 is usual
    assert sum(arrival.duration_s for arrival in many) / len(many) == pytest.approx(60, rel=0.08)
    assert {arrival.tasks for seed in range(20) for arrival in draw_workload(path, seed)} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mean: 60", "average: 60", "class 1 (many): duration_s: exponential: mean is missing"),
        ("exponential", "gauss", "must be a number or one of exponential, lognormal, uniform"),
        ("high: 4", "high: 1", "class 2 (big): tasks: uniform: high is 1; it must be at least low, 2"),
        ("users: eve", "user: eve", "class 2 (big): users is missing"),
        ("hours: 10", "hours: long", "hours is 'long'; it must be a number of at least 0"),
    ],
)
def test_a_mistake_in_a_workload_file_is_named(write: Write, old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as failure:
        draw_workload(write("w.yaml", WORKLOAD.replace(old, new)), 0)
    assert message in str(failure.value)


@pytest.mark.process
def test_a_picture_or_what_to_install_for_one(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "p.png"
    path = write("t.csv", HEAD, "0,ann,batch,1,2,100", "10,bob,,2,1,50")
    assert main(["--trace", str(path), *FLEET, "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["--trace", str(path), *FLEET, "--plot", "p.png"]) == 2
    assert "--plot needs matplotlib: `uv pip install 'marin-iris[plot]'`" in capsys.readouterr().err
