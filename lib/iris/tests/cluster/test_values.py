"""The public values of the cluster at their edges."""

import functools
from fractions import Fraction
from typing import Any

import pytest

from iris.cluster.constraints import (
    Constraint,
    ConstraintOp,
    device_variant_constraint,
    preemptible_constraint,
    region_constraint,
    validate_constraint,
    zone_constraint,
)
from iris.cluster.sizes import format_size, short_size
from iris.cluster.types import (
    CoschedulingConfig,
    DeviceSpec,
    Entrypoint,
    EnvironmentSpec,
    JobName,
    ResourceSpec,
    display_name,
    gpu_device,
    tpu_device,
)
from rigging.errors import InvalidRequest

KIB, MIB, GIB = 2**10, 2**20, 2**30


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1023, "1023 B"), (1024, "1 KiB"), (99 * KIB, "99 KiB"), (100 * KIB + 500, "100 KiB"), (1023 * KIB, "1023 KiB"),
        (MIB, "1 MiB"), (GIB - 1, "1024 MiB"), (GIB, "1 GiB"), (1536 * GIB, "1.5 TiB"),
    ],
)  # fmt: skip
def test_sizes_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"), (1023, "1023 bytes"), (KIB, "1.0 KB"), (10 * KIB - 1, "10.0 KB"), (10 * KIB, "10 KB"),
        (48 * KIB, "48 KB"), (MIB - 1, "1024 KB"), (MIB, "1.0 MB"), (GIB, "1.0 GB"), (25 * GIB, "25 GB"),
    ],
)  # fmt: skip
def test_short_sizes(size: int, text: str) -> None:
    assert short_size(size) == text


def test_names_of_jobs_and_tasks() -> None:
    job, task = JobName.root("ann", "a"), JobName.from_string("/ann/a/7")
    assert (job.is_task, job.task_index, job.parent, job.name, job.user) == (False, None, None, "a", "ann")
    assert (task.is_task, task.task_index, str(task.parent), task.name, task.user) == (True, 7, "/ann/a", "7", "ann")
    assert task.job == job == job.job
    assert str(job.child("b").parent) == "/ann/a"
    assert str(job.task(3)) == "/ann/a/3"
    assert JobName.from_string("/ann/a") < JobName.from_string("/ann/b")
    for use in (lambda: task.child("b"), lambda: task.task(1)):
        with pytest.raises(InvalidRequest, match="/ann/a/7 is a task; only a job has children and tasks"):
            use()
    for wrong in (lambda: JobName.root("ann", "3"), lambda: job.child("3"), lambda: JobName(("ann", "3"))):
        with pytest.raises(InvalidRequest, match="'3'"):
            wrong()
    with pytest.raises(InvalidRequest, match="job name '/ann' is incomplete: expected /user/job"):
        JobName(("ann",))
    with pytest.raises(InvalidRequest, match="must start with '/'"):
        JobName.from_string("ann/a")


class Trainer:
    def __call__(self) -> None: ...

    def run(self) -> None: ...


def test_how_callables_are_called() -> None:
    assert display_name(Trainer().run) == f"{__name__}:Trainer.run"
    assert display_name(Trainer()) == f"{__name__}:Trainer"
    assert display_name(functools.partial(Trainer().run)) == f"{__name__}:Trainer.run"
    nameless = functools.partial(len)
    nameless.__module__ = None
    assert display_name(nameless) == "builtins:len"
    assert Entrypoint.from_pickle(b"x", "m:f").display == "m:f"
    assert Entrypoint.from_command("a", "b c").display == "a b c"


def test_an_entrypoint_is_one_thing() -> None:
    for fields in ({}, {"argv": ("a",), "fn": len}, {"fn": len, "pickled": b"x"}, {"argv": ("a",), "pickled": b"x"}):
        with pytest.raises(InvalidRequest, match=r"use Entrypoint.from_command\(program, \*args\)"):
            Entrypoint(**fields)
    found = Entrypoint.from_callable(max, 1, key=abs)
    assert (found.fn, found.args, found.kwargs) == (max, (1,), {"key": abs})
    with pytest.raises(InvalidRequest, match="contains a NUL character"):
        Entrypoint.from_command("a", "b\0")
    with pytest.raises(InvalidRequest, match="3 is not text; pass each word as a str"):
        Entrypoint.from_command("a", 3)


def test_tpu_hosts() -> None:
    assert tpu_device("v5p-8") == DeviceSpec("tpu", "v5p-8", 4)
    assert tpu_device("v5p-8", 1).count == tpu_device(["v5p-8"], 1).count == 1
    assert tpu_device(["v5p-8", "v4-8", "v5p-16"]).alternatives == ("v4-8", "v5p-16")
    assert tpu_device(["v5p-8", "v6e-8"], 4).count == 4, "so many both have"
    for wrong, reason in (
        (lambda: tpu_device([]), "name at least one TPU type"),
        (lambda: tpu_device("v5p-8", 0), "a host of v5p-8 has 4 chips; asked for 0"),
        (lambda: tpu_device(["v6e-8", "v5p-8"], 8), "a host of v5p-8 has 4 chips; asked for 8"),
        (lambda: tpu_device(["v5p-8", "v6e-8"]), "must have equal hosts: v5p-8 has 4 chips a host, v6e-8"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            wrong()


def test_gpus_and_gangs() -> None:
    assert gpu_device() == DeviceSpec("gpu", "", 1, ())
    assert gpu_device("H100", 8) == DeviceSpec("gpu", "H100", 8)
    with pytest.raises(InvalidRequest, match="count must be at least 1, not 0"):
        gpu_device(count=0)
    assert CoschedulingConfig("rack").group_by == "rack"


def test_resources_that_are_not_named() -> None:
    found = ResourceSpec()
    assert (found.cpu_millis, found.memory_bytes, found.device) == (1000, GIB, None)
    assert ResourceSpec(cpu=0).cpu_millis == 0
    assert ResourceSpec(cpu=0.0014).cpu_millis == 1
    assert ResourceSpec(memory=0, disk=0).memory_bytes == 0


@pytest.mark.parametrize("variables", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}])
def test_variables_that_no_process_can_have(variables: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="cannot be the name of a variable"):
        EnvironmentSpec(env_vars=variables)


def test_environments_are_shown_without_values() -> None:
    found = EnvironmentSpec(["p"], {"B": "2", "A": "1"}, ["x"])
    assert repr(found) == "EnvironmentSpec(pip_packages=['p'], env_vars=<A, B>, extras=['x'])"
    with pytest.raises(InvalidRequest, match=r"pip_packages must be a list, e\.g\. \['numpy'\]"):
        EnvironmentSpec("numpy")
    EnvironmentSpec(env_vars={"A": ""})


@pytest.mark.parametrize(
    ("made", "op", "key", "values"),
    [
        (preemptible_constraint(), ConstraintOp.EQ, "preemptible", ("true",)),
        (preemptible_constraint(False), ConstraintOp.EQ, "preemptible", ("false",)),
        (zone_constraint("z"), ConstraintOp.EQ, "zone", ("z",)),
        (region_constraint("r"), ConstraintOp.EQ, "region", ("r",)),
        (region_constraint(["r"]), ConstraintOp.EQ, "region", ("r",)),
        (region_constraint(["r", "s"]), ConstraintOp.IN, "region", ("r", "s")),
        (device_variant_constraint("v"), ConstraintOp.EQ, "device-variant", ("v",)),
        (device_variant_constraint(["v", "w"]), ConstraintOp.IN, "device-variant", ("v", "w")),
    ],
)
def test_ready_made_constraints(made: Any, op: ConstraintOp, key: str, values: tuple[str, ...]) -> None:
    assert (made.op, made.key, made.values, made.soft) == (op, key, values, False)


@pytest.mark.parametrize("values", ["", [], [""], ["a", ""]])
def test_a_constraint_names_what_it_wants(values: Any) -> None:
    with pytest.raises(InvalidRequest, match="a constraint on region must name at least one value"):
        region_constraint(values)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ResourceSpec(cpu="2"), r"^cpu must be a number of cores from 0 up, not '2'$"),
        (lambda: ResourceSpec(cpu=None), r"^cpu must be a number .*, not None$"),
        (
            lambda: ResourceSpec(device="v5p-8"),
            r"^device must be made by tpu_device or gpu_device, or None, not",
        ),
        (lambda: tpu_device(5), r"^tpu_device: variant must be a list of text, not 5$"),
        (lambda: tpu_device("v5p-8", "4"), r"^tpu_device: count must be a whole number, or None, not '4'$"),
        (lambda: gpu_device(8), r"^gpu_device: variant must be text, not 8$"),
        (lambda: gpu_device("H100", "2"), r"^gpu_device: count must be a whole number, not '2'$"),
        (lambda: EnvironmentSpec(env_vars=[("A", "s3cret")]), r"env_vars must be a dict, not list$"),
        (lambda: EnvironmentSpec(env_vars={5: "a"}), r"the name of a variable must be text, not 5$"),
        (
            lambda: EnvironmentSpec(env_vars={"A": "s3cret\udcff"}),
            r"env_vars\['A'\] cannot be sent: it has",
        ),
        (lambda: EnvironmentSpec(extras=[5]), r"extras\[0\] must be text, not 5$"),
        (lambda: EnvironmentSpec(pip_packages=5), r"pip_packages must be a list of text, not 5$"),
        (lambda: Entrypoint.from_command("cat", "a\udcff"), r"from_command: 'a\\udcff' cannot be sent: it has a lone"),
        (lambda: CoschedulingConfig(5), r"group_by must be text, not 5$"),
    ],
)
def test_a_part_of_another_type_or_that_cannot_be_sent_is_refused_by_its_name(make, error):
    with pytest.raises(InvalidRequest, match=error) as caught:
        make()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("constraint", "error"),
    [
        (Constraint("zone", ConstraintOp.EQ, 5), r"^constraint on 'zone': values must be a list of text, not 5$"),
        (Constraint("n", ConstraintOp.GT, "nan"), r"^constraint on 'n': values must be a list, e\.g\. \['nan'\]$"),
        (Constraint("zone", ConstraintOp.EQ, iter("a")), r"'zone': values must be a tuple of text, not <"),
        (Constraint("zone", "eq", ("a",)), r"^constraint on 'zone': op must be a ConstraintOp, not 'eq'$"),
        (Constraint("zone", ConstraintOp.EQ, (None,)), r"^constraint on 'zone': values\[0\] must be text, not None$"),
        (Constraint(None, ConstraintOp.EXISTS), r"^the key of a constraint must be text, not None$"),
    ],
)
def test_a_constraint_with_parts_of_another_type_is_refused(constraint, error):
    with pytest.raises(InvalidRequest, match=error):
        validate_constraint(constraint)


def test_lists_of_an_environment_may_be_read_once_only():
    made = EnvironmentSpec(pip_packages=(name for name in ("einops", "numpy")), extras=iter(["tpu"]))
    assert (made.pip_packages, made.extras) == (("einops", "numpy"), ("tpu",))


def test_numbers_of_other_libraries_are_numbers_of_cores():
    assert ResourceSpec(cpu=Fraction(1, 4)).cpu_millis == 250
