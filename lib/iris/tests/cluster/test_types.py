"""The public values check themselves and say what is allowed."""

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from iris.cluster import constraints
from iris.cluster.constraints import (
    Constraint,
    ConstraintOp,
    preemptible_constraint,
    region_constraint,
    zone_constraint,
)
from iris.cluster.types import (
    CoschedulingConfig,
    DeviceSpec,
    Entrypoint,
    EnvironmentSpec,
    HealthCheck,
    JobName,
    ResourceSpec,
    display_name,
    gpu_device,
    tpu_device,
)
from rigging.errors import InvalidRequest

GIB = 2**30


def test_names_of_jobs_and_tasks() -> None:
    job, task = JobName.root("ann", "a"), JobName.from_string("/ann/a/b/7")
    assert (job.is_task, job.task_index, job.parent, job.name, job.user) == (False, None, None, "a", "ann")
    assert (task.is_task, task.task_index, str(task.parent), task.name, task.user) == (True, 7, "/ann/a/b", "7", "ann")
    assert task.job == job.child("b") == task.job.job
    assert str(task.job.parent) == "/ann/a"
    assert str(job.task(3)) == "/ann/a/3"
    assert JobName.from_string("/ann/a") < JobName.from_string("/ann/b")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: JobName.from_string("/ann/a/7").child("b"), "/ann/a/7 is a task; only a job has children and tasks"),
        (lambda: JobName.from_string("/ann/a/7").task(1), "/ann/a/7 is a task; only a job has children and tasks"),
        (lambda: JobName(("ann", "3")), "'3'"),
        (lambda: JobName(("ann",)), "job name '/ann' is incomplete: expected /user/job"),
        (lambda: JobName.from_string("ann/a"), "must start with '/'"),
        *(
            (lambda text=text: JobName.from_string(text), "name")
            for text in ("/ann", "/ann/a b", "/ann//x", "/ann/3", "/ann/7/x", "/ann/..", "/ann/x/")
        ),
    ],
)
def test_what_is_no_job_name_is_refused(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        make()


class Trainer:
    def __call__(self) -> None: ...

    def run(self) -> None: ...


def test_how_callables_are_called() -> None:
    assert display_name(Trainer().run) == f"{__name__}:Trainer.run"
    assert display_name(Trainer()) == f"{__name__}:Trainer"
    assert display_name(functools.partial(Trainer().run)) == f"{__name__}:Trainer.run"
    nameless, wrapped = functools.partial(len), functools.partial(print, "x")
    nameless.__module__ = None  # type: ignore[assignment]
    assert display_name(nameless) == "builtins:len"
    assert Entrypoint.from_callable(functools.partial(nameless, [])).display == "builtins:len"
    wrapped.__wrapped__ = zone_constraint  # type: ignore[attr-defined]
    assert Entrypoint.from_callable(wrapped).display == "iris.cluster.constraints:zone_constraint"
    assert Entrypoint.from_pickle(b"x", "m:f").display == "m:f"
    assert Entrypoint.from_command("a", "b c").display == "a b c"


def test_an_entrypoint_is_one_thing() -> None:
    for fields in ({}, {"argv": ("a",), "fn": len}, {"fn": len, "pickled": b"x"}, {"argv": ("a",), "pickled": b"x"}):
        with pytest.raises(InvalidRequest, match=r"use Entrypoint.from_command\(program, \*args\)"):
            Entrypoint(**fields)
    found = Entrypoint.from_callable(max, 1, key=abs)
    assert (found.fn, found.args, found.kwargs) == (max, (1,), {"key": abs})


def test_devices_and_gangs() -> None:
    assert tpu_device("v5p-8") == DeviceSpec("tpu", "v5p-8", 4)
    assert tpu_device("v5p-8", 1).count == tpu_device(["v5p-8"], 1).count == 1
    assert tpu_device(["v5p-8", "v4-8", "v5p-16"]).alternatives == ("v4-8", "v5p-16")
    assert tpu_device(["v5p-8", "v6e-8"], 4).count == 4, "so many both have"
    assert gpu_device() == DeviceSpec("gpu", "", 1, ())
    assert gpu_device("H100", 8) == DeviceSpec("gpu", "H100", 8)
    assert CoschedulingConfig("rack").group_by == "rack"


@pytest.mark.parametrize(
    ("resources", "cpu_millis", "memory_bytes", "disk_bytes"),
    [
        (ResourceSpec(), 1000, GIB, None),
        (ResourceSpec(cpu=0.1, memory="1GB", disk=5 << 20), 100, GIB, 5 << 20),
        (ResourceSpec(cpu=0, memory=0, disk=0), 0, 0, 0),
        (ResourceSpec(cpu=0.0014), 1, GIB, None),
        (ResourceSpec(cpu=Fraction(1, 4)), 250, GIB, None),  # a number of another library
    ],
)
def test_resources_in_the_units_of_the_scheduler(
    resources: ResourceSpec, cpu_millis: int, memory_bytes: int, disk_bytes: int | None
) -> None:
    assert (resources.cpu_millis, resources.memory_bytes, resources.device) == (cpu_millis, memory_bytes, None)
    if disk_bytes is not None:
        assert resources.disk_bytes == disk_bytes


def test_environments_are_shown_without_values_and_lists_may_be_read_once_only() -> None:
    found = EnvironmentSpec(["p"], {"B": "2", "A": ""}, ["x"])
    assert repr(found) == "EnvironmentSpec(pip_packages=['p'], env_vars=<A, B>, extras=['x'])"
    made = EnvironmentSpec(pip_packages=(name for name in ("einops", "numpy")), extras=iter(["tpu"]))
    assert (made.pip_packages, made.extras) == (("einops", "numpy"), ("tpu",))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Entrypoint.from_command(), "from_command"),
        (lambda: Entrypoint.from_command(""), "from_command"),
        (lambda: Entrypoint.from_command("sh", 3), r"3 is not text; pass each word as a str"),
        (lambda: Entrypoint.from_command("a", "b\0"), r"contains a NUL character"),
        (lambda: Entrypoint.from_command("cat", "a\udcff"), r"from_command: 'a\\udcff' cannot be sent: it has a lone"),
        (lambda: Entrypoint.from_callable("text"), r"not callable"),
        (lambda: ResourceSpec(cpu=-1), r"cpu"),
        (lambda: ResourceSpec(cpu=float("nan")), r"cpu"),
        (lambda: ResourceSpec(memory="lots"), r"memory"),
        (lambda: ResourceSpec(disk=-5), r"disk"),
        (lambda: ResourceSpec(cpu="2"), r"^cpu must be a number of cores from 0 up, not '2'$"),
        (lambda: ResourceSpec(device="v5p-8"), r"^device must be made by tpu_device or gpu_device, or None, not"),
        (lambda: tpu_device([]), r"name at least one TPU type"),
        (lambda: tpu_device("v5p-9"), r"v5p-9"),
        (lambda: tpu_device("v5p-8", 0), r"a host of v5p-8 has 4 chips; asked for 0"),
        (lambda: tpu_device("v5p-8", 5), r"a host of v5p-8 has 4 chips; asked for 5"),
        (lambda: tpu_device(["v6e-8", "v5p-8"], 8), r"a host of v5p-8 has 4 chips; asked for 8"),
        (lambda: tpu_device(["v5p-8", "v6e-8"]), r"must have equal hosts: v5p-8 has 4 chips a host, v6e-8"),
        (lambda: tpu_device(5), r"^tpu_device: variant must be a list of text, not 5$"),
        (lambda: tpu_device("v5p-8", "4"), r"^tpu_device: count must be a whole number, or None, not '4'$"),
        (lambda: gpu_device(count=0), r"count must be at least 1, not 0"),
        (lambda: gpu_device(8), r"^gpu_device: variant must be text, not 8$"),
        (lambda: gpu_device("H100", "2"), r"^gpu_device: count must be a whole number, not '2'$"),
        *(
            (lambda variables=variables: EnvironmentSpec(env_vars=variables), r"cannot be the name of a variable")
            for variables in ({"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"})
        ),
        (lambda: EnvironmentSpec(env_vars=[("A", "s3cret")]), r"env_vars must be a dict, not list$"),
        (lambda: EnvironmentSpec(env_vars={5: "a"}), r"the name of a variable must be text, not 5$"),
        (lambda: EnvironmentSpec(env_vars={"N": 1}), r"env_vars\['N'\] must be text, not int"),
        (lambda: EnvironmentSpec(env_vars={"A": "s3cret\udcff"}), r"env_vars\['A'\] cannot be sent: it has"),
        (lambda: EnvironmentSpec(extras="cpu"), r"extras must be a list, e\.g\. \['cpu'\]"),
        (lambda: EnvironmentSpec(extras=[5]), r"extras\[0\] must be text, not 5$"),
        (lambda: EnvironmentSpec("numpy"), r"pip_packages must be a list, e\.g\. \['numpy'\]"),
        (lambda: HealthCheck(5), r"HealthCheck: command must be text, not 5$"),
        (lambda: CoschedulingConfig(""), r"group_by"),
        (lambda: CoschedulingConfig(5), r"group_by must be text, not 5$"),
        *(
            (lambda values=values: region_constraint(values), r"constraint on region must name at least one value")
            for values in ("", [], [""], ["a", ""])
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(make: Callable[[], object], error: str) -> None:
    with pytest.raises(InvalidRequest, match=error) as caught:
        make()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("made", "op", "key", "values"),
    [
        (Constraint.create("k", ConstraintOp.EXISTS), ConstraintOp.EXISTS, "k", ()),
        (Constraint.create("k", ConstraintOp.GT, "5"), ConstraintOp.GT, "k", ("5",)),
        (preemptible_constraint(), ConstraintOp.EQ, "preemptible", ("true",)),
        (preemptible_constraint(False), ConstraintOp.EQ, "preemptible", ("false",)),
        (zone_constraint("z"), ConstraintOp.EQ, "zone", ("z",)),
        (region_constraint("r"), ConstraintOp.EQ, "region", ("r",)),
        (region_constraint(["r"]), ConstraintOp.EQ, "region", ("r",)),
        (region_constraint(["r", "s"]), ConstraintOp.IN, "region", ("r", "s")),
        (constraints.device_variant_constraint("v"), ConstraintOp.EQ, "device-variant", ("v",)),
    ],
)
def test_ready_made_constraints(made: Any, op: ConstraintOp, key: str, values: tuple[str, ...]) -> None:
    assert (made.op, made.key, made.values, made.soft) == (op, key, values, False)


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        (("zone", ConstraintOp.EQ, 5), r"^constraint on 'zone': values must be a list of text, not 5$"),
        (("n", ConstraintOp.GT, "nan"), r"^constraint on 'n': values must be a list, e\.g\. \['nan'\]$"),
        (("zone", ConstraintOp.EQ, iter("a")), r"'zone': values must be a tuple of text, not <"),
        (("zone", "eq", ("a",)), r"^constraint on 'zone': op must be a ConstraintOp, not 'eq'$"),
        (("zone", ConstraintOp.EQ, (None,)), r"^constraint on 'zone': values\[0\] must be text, not None$"),
        ((None, ConstraintOp.EXISTS), r"^the key of a constraint must be text, not None$"),
    ],
)
def test_a_constraint_with_parts_of_another_type_is_refused(parts: Any, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        constraints.validate_constraint(Constraint(*parts))
