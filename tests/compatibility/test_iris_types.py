"""Values of iris as older programs make them."""

import pickle
import sys

import pytest

from iris.cluster.client.job_info import get_job_info
from iris.cluster.constraints import (
    Constraint,
    ConstraintOp,
    merge_constraints,
    preemptible_constraint,
    region_constraint,
)
from iris.cluster.types import EnvironmentSpec, JobName
from iris.env_resources import TaskResources

IN_A_TASK = {
    "IRIS_JOB_ID": "/ann/train",
    "IRIS_TASK_ID": "/ann/train/1",
    "IRIS_ATTEMPT_ID": "/ann/train/1:2",
    "IRIS_WORKER_ID": "w7",
    "IRIS_NUM_TASKS": "2",
    "IRIS_CONTROLLER_ADDRESS": "localhost:7077",
    "IRIS_PORT_HTTP": "4321",
}


@pytest.mark.compatible("Constraint.create(key, op, value | values, mode?)", since="0.1.0")
def test_constraints_are_created():
    chosen = Constraint.create("zone", ConstraintOp.EQ, "us-central1-a")
    assert chosen.evaluate({"zone": "us-central1-a"})
    either = Constraint.create(key="region", op=ConstraintOp.IN, values=["us-east1", "us-east5"])
    assert either == region_constraint(["us-east1", "us-east5"])
    assert Constraint.create("chips", ConstraintOp.GE, 4).evaluate({"chips": "8"})
    assert Constraint.create("preemptible", ConstraintOp.EQ, True, mode="preferred").soft
    absent = Constraint.create("pool", ConstraintOp.NOT_EXISTS)
    assert absent.evaluate({})
    assert not absent.evaluate({"pool": "a"})


@pytest.mark.compatible("ConstraintOp: EQ 0 NE 1 EXISTS 2 NOT_EXISTS 3 GT 4 GE 5 LT 6 LE 7 IN 8", since="0.1.0")
def test_numbers_of_operators():
    assert [op.name for op in sorted(ConstraintOp)] == [
        "EQ",
        "NE",
        "EXISTS",
        "NOT_EXISTS",
        "GT",
        "GE",
        "LT",
        "LE",
        "IN",
    ]
    assert list(map(int, sorted(ConstraintOp))) == list(range(9))


@pytest.mark.compatible("jobs that are stored or sent keep their operators' own numbers", since="0.1.0")
def test_stored_numbers_of_operators():
    from iris.domain.constraints import STORED_NUMBERS

    assert {op.name: number for op, number in STORED_NUMBERS.items()} == {
        "EQ": 1, "NE": 2, "IN": 3, "EXISTS": 4, "GT": 5, "GE": 6, "LT": 7, "LE": 8, "NOT_EXISTS": 9,
    }  # fmt: skip


@pytest.mark.compatible("preemptible_constraint(b, soft?), merge_constraints(parent, child)", since="0.1.0")
def test_a_child_has_its_parents_constraints():
    assert preemptible_constraint(False, soft=True).soft
    parent = [region_constraint("us-east1"), Constraint.create("rack", ConstraintOp.EQ, "a")]
    child = [region_constraint("us-east5"), Constraint.create("rack", ConstraintOp.EQ, "a")]
    assert set(merge_constraints(parent, child)) == set(child)
    assert merge_constraints(parent, []) == parent


@pytest.mark.compatible("JobName.to_wire from_wire root_job namespace depth", since="0.1.0")
@pytest.mark.compatible("JobName.is_ancestor_of require_task to_safe_token", since="0.1.0")
def test_names_of_jobs():
    task = JobName.from_wire("/ann/train/eval/3")
    assert isinstance(task, str)
    assert task == "/ann/train/eval/3" == task.to_wire()
    assert task.root_job == JobName.root("ann", "train")
    assert task.namespace == "/ann/train"
    assert (task.depth, task.root_job.depth) == (2, 1)
    assert task.root_job.is_ancestor_of(task)
    assert not task.root_job.is_ancestor_of(JobName.from_wire("/ann/trainer"))
    assert task.job.is_ancestor_of(task.job)
    assert not task.job.is_ancestor_of(task.job, include_self=False)
    assert task.require_task() == (JobName.from_wire("/ann/train/eval"), 3)
    with pytest.raises(ValueError, match="is a job"):
        task.job.require_task()
    assert task.to_safe_token() == "job__ann__train__eval__3"
    assert pickle.loads(pickle.dumps(task)) == task
    assert pickle.loads(pickle.dumps(task)).task_index == 3


@pytest.mark.compatible("EnvironmentSpec(env_vars=None)", since="0.1.0")
def test_an_environment_without_variables():
    assert EnvironmentSpec(env_vars=None) == EnvironmentSpec()


@pytest.mark.compatible("iris.cluster.client.job_info.get_job_info()", since="0.1.0")
def test_what_a_task_knows_of_itself(monkeypatch):
    monkeypatch.delenv("IRIS_JOB_ID", raising=False)
    assert get_job_info() is None
    for name, value in IN_A_TASK.items():
        monkeypatch.setenv(name, value)
    info = get_job_info()
    assert (info.job_id, info.task_id, info.task_index) == ("/ann/train", "/ann/train/1", 1)
    assert (info.attempt_id, info.num_tasks, info.worker_id) == (2, 2, "w7")
    assert info.controller_address == "localhost:7077"
    assert info.ports["http"] == 4321


@pytest.mark.compatible("iris.env_resources.TaskResources.from_environment()", since="0.1.0")
def test_what_a_task_may_use(tmp_path):
    here = TaskResources.from_environment()
    assert here.memory_bytes > 2**20
    assert here.cpu_cores >= 1
    own = tmp_path / "own"
    for directory, memory in ((tmp_path, "4194304"), (tmp_path / "iris" / "7", "1048576")):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "memory.max").write_text(f"{memory}\n")
        (directory / "cpu.max").write_text("50000 100000\n")
    own.write_text("0::/iris/7\n")
    assert TaskResources.from_environment({}, tmp_path, own) == TaskResources(1048576, 1)
    given = {"IRIS_MEMORY_BYTES": "2048", "IRIS_CPU_CORES": "2.5"}
    assert TaskResources.from_environment(given, tmp_path, own) == TaskResources(2048, 3)


@pytest.mark.compatible("IrisContext.get_port(name) namespace parent_job_id, iris_ctx_scope", since="0.1.0")
def test_the_context_of_a_task():
    from iris.client import IrisClient, IrisContext, get_iris_ctx, iris_ctx, iris_ctx_scope
    from iris.client.job_env import job_env

    variables = {**IN_A_TASK, "IRIS_JOB_ID": "/ann/train/eval", "IRIS_TASK_ID": "/ann/train/eval/0"}
    with IrisClient.remote("localhost:7077") as client:
        context = IrisContext(job_env(variables), client)
        with iris_ctx_scope(context):
            assert iris_ctx() is get_iris_ctx() is context
            assert iris_ctx().get_port("HTTP") == 4321
            assert iris_ctx().namespace == "/ann/train"
            assert iris_ctx().parent_job_id == "/ann/train"
            with pytest.raises(KeyError, match="no port 'grpc'"):
                iris_ctx().get_port("grpc")


@pytest.mark.compatible("iris.runtime.jax_init.initialize_jax()", since="0.1.0")
def test_jax_of_one_task_needs_no_coordinator(monkeypatch):
    from iris.client import IrisClient, IrisContext, iris_ctx_scope
    from iris.client.job_env import job_env
    from iris.runtime.jax_init import initialize_jax

    monkeypatch.delenv("IRIS_JOB_ID", raising=False)
    # It does not even need JAX: there is nothing to join.
    monkeypatch.setitem(sys.modules, "jax", None)
    assert initialize_jax() is None
    alone = {**IN_A_TASK, "IRIS_TASK_ID": "/ann/train/0", "IRIS_ATTEMPT_ID": "/ann/train/0:0", "IRIS_NUM_TASKS": "1"}
    with IrisClient.remote("localhost:7077") as client, iris_ctx_scope(IrisContext(job_env(alone), client)):
        assert initialize_jax() is None
