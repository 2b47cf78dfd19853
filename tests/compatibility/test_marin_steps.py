"""marin.execution as older experiments call it."""

import itertools
import os
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from fray import ResourceConfig
from marin.execution import (
    Executor,
    ExecutorStep,
    materialize,
    mirrored,
    output_path_of,
    this_output_path,
    versioned,
)
from marin.execution.artifact import Artifact, PathMetadata, PathsMetadata
from marin.execution.executor import infer_tpu_variant_regions_from_iris, resolve_executor_step
from marin.execution.remote import RemoteCallable, _sanitize_job_name, remote, sanitize_job_name
from marin.execution.step_runner import StepRunner
from marin.execution.step_spec import StepSpec


@dataclass(frozen=True)
class Config:
    output_path: Any
    inputs: Any = None
    n: Any = 1


def write(config):
    os.makedirs(config.output_path, exist_ok=True)
    with open(os.path.join(config.output_path, "out"), "w") as file:
        file.write(str(config.inputs))


def step(name, inputs=None, n=1, fn=write):
    return ExecutorStep(name=name, fn=fn, config=Config(this_output_path(), inputs, versioned(n)))


@pytest.fixture
def executor(prefix):
    return Executor(prefix, f"{prefix}/experiments")


@pytest.mark.compatible('ExecutorStep.with_output_path("tokenized/x-349fb7/")', since="0.1.0")
@pytest.mark.compatible('ExecutorStep(override_output_path="tokenized/x-349fb7/")', since="0.1.0")
def test_a_fixed_path_may_end_in_a_slash(executor, prefix):
    fixed = step("tokenized/x").with_output_path("tokenized/x-349fb7/")
    reader = step("reader", output_path_of(fixed, "train"))
    paths = executor.run([reader])
    assert paths[fixed] == f"{prefix}/tokenized/x-349fb7/"
    assert executor.configs[reader].inputs == f"{prefix}/tokenized/x-349fb7/train"
    assert {".executor_info", ".executor_status", "out"} <= set(os.listdir(f"{prefix}/tokenized/x-349fb7"))
    again = ExecutorStep("tokenized/x", write, fixed.config, override_output_path="tokenized/x-349fb7/")
    assert Executor(prefix, prefix).run([again])[again] == paths[fixed]
    bucket = ExecutorStep("b", write, fixed.config, override_output_path="gs://marin-us-central2/tokenized/x-349fb7/")
    assert bucket.override_output_path == "gs://marin-us-central2/tokenized/x-349fb7/"


@pytest.mark.compatible("marin.execution.remote._sanitize_job_name(name)", since="0.1.0")
@pytest.mark.compatible("marin.execution.remote.sanitize_job_name(name)", since="0.1.0")
def test_names_become_names_of_jobs():
    for name, expected in {
        "Train/Llama 3.1_8B": "train-llama-3.1_8b",
        "--a//b..": "a-b",
        "///": "remote_job",
        "": "remote_job",
    }.items():
        assert _sanitize_job_name(name) == sanitize_job_name(name) == expected


@pytest.mark.compatible("marin.execution.executor.infer_tpu_variant_regions_from_iris(variants)", since="0.1.0")
def test_outside_of_a_cluster_no_regions_are_known():
    from fray.client import TellsRegions
    from fray.current_client import set_current_client
    from fray.local_backend import LocalClient

    class Cluster(LocalClient):
        def accelerator_regions(self, variants):
            several = ["us-east5", "europe-west4"] if len(variants) > 1 else []
            return ["us-east5"] if list(variants) == ["v5p-8"] else several

    client = LocalClient()
    with set_current_client(client):
        assert infer_tpu_variant_regions_from_iris(["v5p-8"]) is None
    client.shutdown()
    cluster = Cluster()
    assert isinstance(cluster, TellsRegions)
    with set_current_client(cluster):
        assert infer_tpu_variant_regions_from_iris(["v5p-8"]) == ["us-east5"]
        assert infer_tpu_variant_regions_from_iris(["v6e-8"]) == []
        assert infer_tpu_variant_regions_from_iris(["v4-8", "v5p-8"]) == ["europe-west4", "us-east5"]
    cluster.shutdown()


@pytest.mark.compatible("Artifact.load(base_path=step_or_path, artifact_type=)", since="0.1.0")
@pytest.mark.compatible("Artifact.save(artifact=, base_path=)", since="0.1.0")
def test_an_artifact_of_a_step(prefix):
    spec = StepSpec(name="tokens", hash_attrs={"n": 1})
    Artifact.save(artifact=PathMetadata(path="/a"), base_path=spec.output_path)
    assert Artifact.load(spec, PathMetadata) == PathMetadata("/a")
    assert Artifact.load(base_path=spec, artifact_type=PathMetadata) == PathMetadata("/a")
    assert Artifact.load(base_path=spec.output_path) == {"path": "/a"}
    with pytest.raises(FileNotFoundError):
        Artifact.load(StepSpec(name="none"), PathMetadata)


@pytest.mark.compatible("PathMetadata, PathsMetadata: mutable dataclasses", since="0.1.0")
def test_results_that_are_paths_can_be_changed():
    one = PathMetadata(path="/a")
    one.path = "/b"
    several = PathsMetadata(parent_path="/p", paths=["x"])
    several.parent_path = "/q"
    several.paths.append("y")
    assert (one, several) == (PathMetadata("/b"), PathsMetadata("/q", ["x", "y"]))


@pytest.mark.compatible("Executor.run(run_only=[a step reached only by .nonblocking()])", since="0.1.0")
def test_a_step_that_is_only_named_can_be_run(executor, prefix):
    raw = step("raw")
    train = step("train", raw)
    report = step("report", output_path_of(train, "checkpoints").nonblocking())
    paths = executor.run([report], run_only=["^train$"])
    assert {name: os.path.exists(f"{paths[one]}/out") for name, one in (("raw", raw), ("train", train))} == {
        "raw": True,
        "train": True,
    }
    assert not os.path.exists(f"{paths[report]}/out")


@pytest.mark.compatible("Executor.steps has no duplicates", since="0.1.0")
def test_equal_steps_are_listed_once(executor):
    one, same, other = step("a"), step("a"), step("a", n=2)
    for each in (one, same, other, one):
        executor.compute_version(each, is_pseudo_dep=False)
    assert executor.steps == [one, other]
    assert executor.output_paths[same] == executor.output_paths[one]


@pytest.mark.compatible("mirrored(mirrored(x)): ValueError", since="0.1.0")
def test_a_mirrored_value_is_not_mirrored_again():
    with pytest.raises(ValueError, match="mirrored"):
        mirrored(mirrored("documents/x"))
    with pytest.raises(ValueError, match="mirrored"):
        mirrored(value=mirrored(versioned("documents/x"), budget_gb=5), budget_gb=10)


@pytest.mark.compatible("materialize(config, output_path=OutputName): TypeError", since="0.1.0")
@pytest.mark.compatible("materialize(config that holds an OutputName): ValueError", since="0.1.0")
def test_materialize_needs_a_real_output_path(prefix):
    with pytest.raises(TypeError):
        materialize(Config("/x"), output_path=this_output_path())
    with pytest.raises(ValueError, match="no output path"):
        materialize(Config(this_output_path()))
    assert materialize(Config(this_output_path("a")), output_path="/x").output_path == "/x/a"


@pytest.mark.compatible('StepRunner.run: cause RuntimeError("Step failed: {name_with_hash}")', since="0.1.0")
def test_a_failure_names_the_step_and_then_its_error(prefix):
    def fail(output_path):
        raise KeyError("missing column")

    spec = StepSpec(name="bad", hash_attrs={"n": 1}, fn=fail)
    with pytest.raises(RuntimeError, match=r"1 step\(s\) failed") as caught:
        StepRunner().run([spec])
    cause = caught.value.__cause__
    assert isinstance(cause, RuntimeError)
    assert str(cause) == f"Step failed: {spec.name_with_hash}"
    assert isinstance(cause.__cause__, KeyError)


@pytest.mark.compatible("resolve_executor_step(remote step, ...).fn: RemoteCallable", since="0.1.0")
@pytest.mark.compatible(
    "resolve_executor_step(..., dag_tpu_regions=, forced_region=, mirror_budget_gb=)", since="0.1.0"
)
def test_a_remote_step_as_a_spec(prefix, tmp_path):
    resources = ResourceConfig.with_tpu("v5p-8")
    train = step("train", fn=remote(write, resources=resources, env_vars={"A": "1"}))
    config, path = Config(str(tmp_path / "out"), "x"), str(tmp_path / "out")
    spec = resolve_executor_step(train, config, path)
    assert isinstance(spec.fn, RemoteCallable)
    assert (spec.fn.resources, spec.fn.env_vars, spec.output_path) == (resources, {"A": "1"}, path)
    assert spec.as_executor_step() is train
    pinned = resolve_executor_step(train, config, path, deps=[], forced_region="us-east5")
    assert pinned.fn.resources.regions == ["us-east5"]
    among = resolve_executor_step(train, config, path, dag_tpu_regions=["us-east5", "us-central1"])
    assert among.fn.resources.regions == ["us-central1", "us-east5"]
    with pytest.raises(ValueError, match="us-west4"):
        resolve_executor_step(train, config, path, dag_tpu_regions=["us-east5"], forced_region="us-west4")


@pytest.mark.compatible("resolve_executor_step(plain step, ..., mirror_budget_gb=)", since="0.1.0")
def test_a_plain_step_as_a_spec_copies_within_its_budget(prefix, tmp_path):
    from rigging.filesystem import current_budget

    limits = []
    plain = step("plain", fn=lambda config: limits.append((current_budget().limit_bytes, config.inputs)))
    spec = resolve_executor_step(plain, Config(str(tmp_path), "x"), str(tmp_path), mirror_budget_gb=2)
    StepRunner().run([spec])
    assert limits == [(2 * 1024**3, "x")]


def run_workers(count, work):
    errors = []

    def run():
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return errors


@pytest.mark.compatible("claim_and_run(sweep_root, targets, run_fn): run_fn(target)", since="0.1.0")
@pytest.mark.compatible("claim_and_run returns when every target is done, by whichever worker", since="0.1.0")
def test_a_sweep_is_shared_out(tmp_path):
    from marin.execution.sweep import SweepTarget, claim_and_run

    targets = [SweepTarget(target_id=f"lr={lr}", config={"lr": lr}) for lr in (0.1, 0.2, 0.3)]
    ran, at_return, both_at_work = [], [], threading.Barrier(2, timeout=30)
    begun = itertools.count()

    def run_fn(target):
        if next(begun) < 2:
            both_at_work.wait()
        ran.append((target.target_id, target.config["lr"]))

    def work():
        assert claim_and_run(str(tmp_path), targets, run_fn) is None
        at_return.append(len(ran))

    assert run_workers(2, work) == []
    assert sorted(ran) == [(target.target_id, target.config["lr"]) for target in targets]
    assert at_return == [3, 3]


@pytest.mark.compatible("claim_and_run waits for targets that its peers run", since="0.1.0")
def test_a_worker_with_nothing_left_to_claim_waits_for_its_peers(tmp_path):
    from marin.execution.sweep import SweepTarget, claim_and_run

    targets = [SweepTarget("slow", 1), SweepTarget("quick", 2)]
    slow_began, quick_ran, returned = threading.Event(), threading.Event(), threading.Event()
    early = []

    def run_slow(target):
        assert target.target_id == "slow"
        slow_began.set()
        assert quick_ran.wait(30)
        early.append(returned.wait(0.2))

    def be_peer():
        assert slow_began.wait(30)
        claim_and_run(str(tmp_path), targets, lambda target: quick_ran.set())
        returned.set()

    peer = threading.Thread(target=be_peer)
    peer.start()
    claim_and_run(str(tmp_path), targets, run_slow)
    peer.join(30)
    assert early == [False], "the peer returned while a target was not done"
    assert returned.is_set()


@pytest.mark.compatible("claim_and_run: the first failure stops this worker and propagates", since="0.1.0")
def test_a_failure_leaves_the_rest_of_a_sweep_to_peers(tmp_path):
    from marin.execution.executor_step_status import STATUS_FAILED, STATUS_SUCCESS, StatusFile
    from marin.execution.sweep import SweepTarget, claim_and_run

    targets = [SweepTarget("a", 1), SweepTarget("b", 2), SweepTarget("c", 3)]
    ran = []

    def run_fn(target):
        ran.append(target.target_id)
        if target.config == 2 and ran.count("b") == 1:
            raise ZeroDivisionError("bad point")

    with pytest.raises(ZeroDivisionError, match="bad point"):
        claim_and_run(str(tmp_path), targets, run_fn)
    assert ran == ["a", "b"]
    assert StatusFile(f"{tmp_path}/b", "peer").status == STATUS_FAILED
    claim_and_run(str(tmp_path), targets, run_fn)
    assert ran == ["a", "b", "b", "c"]
    assert StatusFile(f"{tmp_path}/b", "peer").status == STATUS_SUCCESS


@pytest.mark.compatible("disk_cache: a hit equals the first call's result, of whatever type", since="0.1.0")
@pytest.mark.compatible("disk_cache: arguments may be any picklable object", since="0.1.0")
def test_a_cached_result_is_what_it_was(prefix):
    import numpy as np

    from marin.execution.disk_cache import disk_cache

    calls = []

    class Tokenizer:
        def __init__(self, name):
            self.name = name

    @disk_cache
    def compute(tokenizer, value):
        calls.append(tokenizer.name)
        return value

    tokenizer = Tokenizer("llama")
    for value in ((1, (2,)), {1, 2}, {1: "a", None: b"x"}, Config("x")):
        first, hit = compute(tokenizer, value), compute(tokenizer, value)
        assert hit == first == value
        assert type(hit) is type(first)
    array = compute(tokenizer, np.arange(3))
    assert (compute(tokenizer, np.arange(3)) == array).all()
    assert len(calls) == 5
    compute(Tokenizer("other"), 1)
    assert calls[-1] == "other"


@pytest.mark.compatible("disk_cache: results lie in the 1-day temporary bucket, pickled as data.pkl", since="0.1.0")
def test_cached_results_lie_in_temporary_storage(prefix):
    import cloudpickle

    from marin.execution.disk_cache import disk_cache

    @disk_cache
    def compute(n):
        return (n, {n})

    compute(3)
    (directory,) = os.listdir(f"{prefix}/tmp")
    assert directory.startswith("disk_cache_")
    with open(f"{prefix}/tmp/{directory}/data.pkl", "rb") as file:
        assert cloudpickle.load(file) == (3, {3})


@pytest.mark.compatible("disk_cache: the temporary bucket of the region, for one day", since="0.1.0")
def test_cached_results_of_a_region_lie_in_its_bucket(gcs_server, in_us_central2):
    from marin.execution.disk_cache import disk_cache
    from rigging.filesystem import filesystem

    gcs_server.create_bucket("marin-us-central2", "us-central2")
    compute = disk_cache(lambda n: (n, {n}))
    assert compute(3) == compute(3) == (3, {3})
    fs = filesystem("gs")
    fs.invalidate_cache()
    (kept,) = fs.glob("marin-us-central2/tmp/ttl=1d/*/data.pkl")
    fs.rm(kept)


@pytest.mark.compatible("disk_cache(fn?, *, output_path?, save_fn?, load_fn?): a class", since="0.1.0")
def test_the_ways_to_write_a_disk_cache(prefix, tmp_path):
    from marin.execution.disk_cache import disk_cache

    calls = []

    def save(value, path):
        with open(os.path.join(path, "value"), "w") as file:
            file.write(value)

    def load(path):
        with open(os.path.join(path, "value")) as file:
            return file.read()

    @disk_cache(output_path=str(tmp_path / "a"), save_fn=save, load_fn=load)
    def make(text):
        """Make it."""
        calls.append(text)
        return text

    assert [make("x"), make("y")] == ["x", "x"]
    assert isinstance(make, disk_cache)
    assert (make.__name__, make.__doc__) == ("make", "Make it.")
    called = disk_cache(lambda: calls.append("z"), output_path=str(tmp_path / "b"))
    called()
    called()
    assert calls == ["x", "z"]


@pytest.mark.compatible("disk_cache takes no lock by itself", since="0.1.0")
def test_two_callers_may_compute_at_once(prefix, tmp_path):
    from marin.execution.disk_cache import disk_cache

    both = threading.Barrier(2, timeout=30)
    compute = disk_cache(lambda: both.wait() >= 0, output_path=str(tmp_path / "a"))
    results = []
    assert run_workers(2, lambda: results.append(compute())) == []
    assert results == [True, True]


@pytest.mark.compatible("disk_cache(distributed_lock(fn), output_path=p)(p)", since="0.1.0")
def test_a_lock_within_a_disk_cache(prefix, tmp_path):
    from marin.execution.disk_cache import disk_cache
    from marin.execution.executor_step_status import STATUS_SUCCESS, StatusFile, distributed_lock

    path, calls = str(tmp_path / "a"), []

    def compute(output_path):
        calls.append(output_path)
        return {"path": (output_path,)}

    cached = disk_cache(distributed_lock(compute), output_path=path)
    results = []
    assert run_workers(4, lambda: results.append(cached(path))) == []
    assert results == [{"path": (path,)}] * 4
    assert calls == [path]
    assert StatusFile(path, "peer").status == STATUS_SUCCESS


@pytest.mark.compatible("disk_cache: another user's local file is not unpickled", since="0.1.0")
def test_a_file_of_another_user_is_not_loaded(prefix, monkeypatch):
    from marin.execution.disk_cache import disk_cache

    cached = disk_cache(lambda: 1)
    assert cached() == 1
    (directory,) = os.listdir(f"{prefix}/tmp")
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(f"{prefix}/tmp/{directory}/data.pkl", 12345, 12345)
    with pytest.raises(PermissionError, match="another user"):
        cached()
