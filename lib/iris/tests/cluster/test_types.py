"""The public values check themselves and say what is allowed."""

import functools

import pytest

from iris.cluster.constraints import (
    ConstraintOp,
    device_variant_constraint,
    preemptible_constraint,
    region_constraint,
    zone_constraint,
)
from iris.cluster.sizes import format_size, parse_size
from iris.cluster.types import (
    CoschedulingConfig,
    Entrypoint,
    EnvironmentSpec,
    JobName,
    ResourceSpec,
    gpu_device,
    tpu_device,
)
from rigging.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GB", 2**30), ("1g", 2**30), ("1GiB", 2**30), ("1.5 MB", 3 * 2**19), ("512", 512), (7, 7), ("2TB", 2**41)],
)
def test_sizes_are_powers_of_1024_in_every_spelling(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1XB", -1, True, None, "1e3"])
def test_what_is_no_size_is_named(text):
    with pytest.raises(InvalidRequest, match="memory"):
        parse_size(text, "memory")


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (300 << 20, "300 MiB"), (2**40, "1 TiB")])
def test_sizes_for_people(size, text):
    assert format_size(size) == text


def test_a_job_name_knows_its_parts():
    task = JobName.from_string("/ann/train/eval/3")
    assert (task.user, task.task_index, str(task.job), str(task.parent)) == (
        "ann",
        3,
        "/ann/train/eval",
        "/ann/train/eval",
    )
    assert str(task.job.parent) == "/ann/train"
    assert JobName.root("ann", "train").parent is None
    assert str(JobName.root("ann", "train").child("eval").task(0)) == "/ann/train/eval/0"


@pytest.mark.parametrize(
    "text", ["ann/train", "/ann", "/ann/a b", "/ann//x", "/ann/3", "/ann/7/x", "/ann/..", "/ann/x/"]
)
def test_what_is_no_job_name_is_refused(text):
    with pytest.raises(InvalidRequest):
        JobName.from_string(text)


def test_a_task_has_no_children():
    with pytest.raises(InvalidRequest, match="is a task"):
        JobName.from_string("/ann/train/0").child("x")


def test_a_command_is_words_and_a_callable_is_callable():
    assert Entrypoint.from_command("python", "-m", "x").display == "python -m x"
    assert Entrypoint.from_callable(test_a_task_has_no_children).display.endswith(":test_a_task_has_no_children")
    for wrong in ([], [""], ["sh", 3], ["a\0b"]):
        with pytest.raises(InvalidRequest):
            Entrypoint.from_command(*wrong)
    with pytest.raises(InvalidRequest, match="not callable"):
        Entrypoint.from_callable("text")
    with pytest.raises(InvalidRequest, match="from_command"):
        Entrypoint()


def test_resources_in_the_units_of_the_scheduler():
    resources = ResourceSpec(cpu=0.1, memory="1GB", disk=5 << 20)
    assert (resources.cpu_millis, resources.memory_bytes, resources.disk_bytes) == (100, 2**30, 5 << 20)


@pytest.mark.parametrize("wrong", [{"cpu": -1}, {"cpu": float("nan")}, {"memory": "lots"}, {"disk": -5}])
def test_impossible_resources_are_refused(wrong):
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        ResourceSpec(**wrong)


def test_environment_hides_values_and_takes_lists():
    assert "s3cret" not in repr(EnvironmentSpec(env_vars={"TOKEN": "s3cret"}))
    assert "TOKEN" in repr(EnvironmentSpec(env_vars={"TOKEN": "s3cret"}))
    with pytest.raises(InvalidRequest, match=r"extras must be a list, e\.g\. \['cpu'\]"):
        EnvironmentSpec(extras="cpu")
    with pytest.raises(InvalidRequest, match=r"env_vars\['N'\] must be text, not int"):
        EnvironmentSpec(env_vars={"N": 1})
    with pytest.raises(InvalidRequest, match="cannot be the name"):
        EnvironmentSpec(env_vars={"A=B": ""})


def test_devices():
    device = tpu_device(["v5p-8", "v4-8"])
    assert (device.kind, device.variant, device.count, device.alternatives) == ("tpu", "v5p-8", 4, ("v4-8",))
    assert gpu_device("H100", 8).count == 8
    with pytest.raises(InvalidRequest, match="v6e-8"):
        tpu_device(["v5p-8", "v6e-8"])
    with pytest.raises(InvalidRequest, match="4 chips; asked for 5"):
        tpu_device("v5p-8", 5)
    with pytest.raises(InvalidRequest, match="v5p-9"):
        tpu_device("v5p-9")
    with pytest.raises(InvalidRequest, match="at least 1"):
        gpu_device("H100", 0)
    with pytest.raises(InvalidRequest, match="group_by"):
        CoschedulingConfig("")


def test_ready_made_constraints_choose_the_right_workers():
    assert zone_constraint("us-central1-a").evaluate({"zone": "us-central1-a"})
    assert not zone_constraint("us-central1-a").evaluate({"zone": "us-central1-b"})
    either = region_constraint(["us-east1", "us-east5"])
    assert either.op is ConstraintOp.IN
    assert either.evaluate({"region": "us-east5"})
    assert not either.evaluate({})
    assert preemptible_constraint(False).evaluate({"preemptible": "false"})
    assert device_variant_constraint("v5p-8").evaluate({"device-variant": "v5p-8"})
    with pytest.raises(InvalidRequest, match="region"):
        region_constraint([])


def test_a_callable_is_shown_as_what_it_wraps():
    wrapped = functools.partial(print, "x")
    assert Entrypoint.from_callable(functools.partial(functools.partial(len), [])).display == "builtins:len"
    wrapped.__wrapped__ = zone_constraint
    assert Entrypoint.from_callable(wrapped).display == "iris.cluster.constraints:zone_constraint"
