"""Jobs of fray as older programs submit and describe them."""

import pytest

import fray.types
from fray import JobAlreadyExists, JobFailed, LocalClient, wait_all
from fray.cluster import Entrypoint, JobRequest, JobStatus, ResourceConfig
from fray.current_client import _current_client_var, current_client, set_current_client
from fray.device_flops import device_flops, device_flops_for_jax_device
from fray.types import CpuConfig, GpuConfig, TpuConfig, create_environment, get_tpu_topology


def _fail() -> None:
    raise ValueError("no such shard")


@pytest.fixture
def client():
    with LocalClient() as made:
        yield made


@pytest.mark.compatible("wait_all(jobs=) raises JobFailed, caused by the callable's own exception", since="0.1.0")
@pytest.mark.compatible("JobFailed.failed_status", since="0.1.0")
@pytest.mark.compatible("fray.cluster.Entrypoint, JobRequest, JobStatus", since="0.1.0")
def test_waiting_for_jobs(client):
    good = client.submit(JobRequest("good", Entrypoint.from_callable(print, args=["hello"])))
    assert wait_all(jobs=[good]) == [JobStatus.SUCCEEDED]
    bad = client.submit(JobRequest("bad", Entrypoint.from_callable(_fail)))
    with pytest.raises(JobFailed) as caught:
        wait_all(jobs=[bad])
    assert caught.value.job_id == bad.job_id
    assert caught.value.failed_status == JobStatus.FAILED
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.compatible("JobFailed(job_id, status)", since="0.1.0")
def test_a_failure_of_a_job_by_its_id():
    error = JobFailed("train-1", JobStatus.STOPPED)
    assert (error.job_id, error.failed_status) == ("train-1", JobStatus.STOPPED)
    assert "train-1" in str(error)
    assert "stopped" in str(error)
    assert str(JobFailed("job 'x' failed: oops", job_id="local-1-x")) == "job 'x' failed: oops"


@pytest.mark.compatible("JobAlreadyExists(name, handle=)", since="0.1.0")
@pytest.mark.compatible("JobAlreadyExists.handle, .job_name", since="0.1.0")
def test_a_name_that_is_taken(client):
    import threading

    release = threading.Event()
    first = client.submit(JobRequest("again", Entrypoint.from_callable(release.wait)))
    with pytest.raises(JobAlreadyExists) as caught:
        client.submit(JobRequest("again", Entrypoint.from_callable(print)), adopt_existing=False)
    release.set()
    assert caught.value.job_name == "again"
    assert caught.value.handle.wait() == first.wait() == JobStatus.SUCCEEDED
    made = JobAlreadyExists("again", handle=first)
    assert (made.job_name, made.handle) == ("again", first)


@pytest.mark.compatible('create_environment(env_vars={"A": None}) drops A', since="0.1.0")
@pytest.mark.compatible("create_environment: HF_DATASETS_TRUST_REMOTE_CODE, TOKENIZERS_PARALLELISM", since="0.1.0")
def test_variables_of_an_environment(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "of-mine")
    made = create_environment(workspace=".", env_vars={"WANDB_API_KEY": None, "B": "1"})
    assert "WANDB_API_KEY" not in made.env_vars
    assert made.env_vars["B"] == "1"
    assert made.env_vars["HF_DATASETS_TRUST_REMOTE_CODE"] == "1"
    assert made.env_vars["TOKENIZERS_PARALLELISM"] == "false"


@pytest.mark.compatible('device_flops(dtype="bf16") of one chip', since="0.1.0")
@pytest.mark.compatible("ResourceConfig.total_flops() of all chips; 1e11 for CPU", since="0.1.0")
@pytest.mark.compatible("CpuConfig.device_flops() raises NotImplementedError", since="0.1.0")
@pytest.mark.compatible("TpuConfig.total_flops(), .chip_count() per VM, .vm_count()", since="0.1.0")
def test_what_a_trainer_divides_by():
    pod = ResourceConfig.with_tpu("v5p-16")
    assert pod.device_flops() == pod.device_flops(dtype="bf16") == 459e12
    assert pod.total_flops() == 8 * 459e12
    assert (pod.device.chip_count(), pod.device.vm_count()) == (4, 2)
    assert pod.device.total_flops() == 4 * 459e12
    node = ResourceConfig.with_gpu("H100", count=8)
    assert node.device_flops() == 989e12
    assert node.total_flops() == node.device.total_flops() == 8 * 989e12
    assert ResourceConfig.with_cpu().total_flops() == 1e11
    with pytest.raises(NotImplementedError):
        ResourceConfig.with_cpu().device_flops()
    with pytest.raises(NotImplementedError):
        CpuConfig().device_flops()


@pytest.mark.compatible("GpuConfig: A100-40G, A100-80G, B100", since="0.1.0")
@pytest.mark.compatible('get_tpu_topology("v5litepod-2"), fray.types.TPU_TOPOLOGIES', since="0.1.0")
def test_accelerators_of_the_tables():
    assert GpuConfig("A100-40G").device_flops() == GpuConfig("A100-80G").device_flops() == 312e12
    assert GpuConfig("B100").device_flops() > GpuConfig("H100").device_flops()
    assert get_tpu_topology("v5litepod-2").chips_per_vm == 2
    assert "v5litepod-2" in [topology.name for topology in fray.types.TPU_TOPOLOGIES]
    assert ResourceConfig.with_tpu("v5litepod-2").chip_count() == 2


@pytest.mark.compatible("fray.device_flops.device_flops_for_jax_device(kind, dtype)", since="0.1.0")
@pytest.mark.parametrize(
    ("kind", "flops"),
    [
        ("TPU v4", 275e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5p", 459e12),
        ("TPU v5", 459e12),
        ("TPU v6 lite", 918e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA A10G", 70e12),
        ("cpu", None),
    ],
)
def test_the_rate_of_what_jax_runs_on(kind, flops):
    assert device_flops_for_jax_device(kind, "bf16") == flops


@pytest.mark.compatible("fray.device_flops.device_flops(type, dtype)", since="0.1.0")
def test_rates_by_type():
    assert device_flops("h100", "bf16") == 989e12
    assert device_flops("H100", "fp8") == 2 * 989e12
    assert device_flops("v5p-8") == 459e12
    assert device_flops("H100", "fp3") is None


@pytest.mark.compatible("default_env_vars(): JAX_PLATFORMS, LIBTPU_INIT_ARGS", since="0.1.0")
@pytest.mark.parametrize(
    ("tpu", "arguments"),
    [
        ("v4-8", None),
        ("v5e-8", "--xla_tpu_scoped_vmem_limit_kib=50000"),
        ("v5litepod-16", "--xla_tpu_scoped_vmem_limit_kib=50000"),
        ("v5p-8", "--xla_tpu_scoped_vmem_limit_kib=50000"),
        ("v6e-8", "--xla_tpu_scoped_vmem_limit_kib=98304"),
    ],
)
def test_variables_of_devices(tpu, arguments):
    assert CpuConfig().default_env_vars() == {"JAX_PLATFORMS": "cpu"}
    assert GpuConfig("H100").default_env_vars()["JAX_PLATFORMS"] == ""
    variables = TpuConfig(tpu).default_env_vars()
    assert variables["JAX_PLATFORMS"] == ""
    assert variables.get("LIBTPU_INIT_ARGS") == arguments


@pytest.mark.compatible("fray.current_client._current_client_var", since="0.1.0")
def test_the_client_of_a_test_is_reset(client):
    token = _current_client_var.set(client)
    assert current_client() is client
    _current_client_var.reset(token)
    with set_current_client(client):
        assert _current_client_var.get() is client


@pytest.mark.compatible("fray: GpuType TpuType LocalJobHandle LocalActorHandle LocalActorMethod", since="0.1.0")
def test_names_that_are_imported(client):
    from typing import get_args

    from fray import GpuType, LocalJobHandle, TpuType

    assert "H100" in get_args(GpuType)
    assert "v5p-8" in get_args(TpuType)
    assert isinstance(client.submit(JobRequest("job", Entrypoint.from_callable(print))), LocalJobHandle)


@pytest.mark.compatible("fray.iris_backend.FrayIrisClient(controller_address, workspace?, bundle_id?)", since="0.1.0")
@pytest.mark.compatible("FrayIrisClient.from_iris_client(client)", since="0.1.0")
def test_the_client_of_iris_by_its_old_name(tmp_path, caplog):
    from fray.iris_backend import FrayIrisClient
    from iris.client import IrisClient

    client = FrayIrisClient("http://localhost:10000", workspace=tmp_path, bundle_id="b-1")
    assert not client.closed
    assert "bundle_id 'b-1' is not used" in caplog.text
    client.shutdown()
    over = FrayIrisClient.from_iris_client(IrisClient.remote("localhost:10000"))
    assert isinstance(over, FrayIrisClient)
    over.shutdown()
