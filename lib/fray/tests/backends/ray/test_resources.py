"""Requests in Ray's words; none of this needs ray."""

import logging
from pathlib import Path

import pytest

from fray.backends.ray.resources import (
    PACKAGES_ENV,
    extra_packages,
    host_resources,
    lacking,
    member_paths,
    resolve_environment,
    shortfall,
    task_options,
    without_ray,
)
from fray.types import EnvironmentConfig, ResourceConfig
from rigging.errors import InvalidRequest


def test_a_slice_of_one_host_takes_its_head_and_a_larger_one_only_chips() -> None:
    found = host_resources(ResourceConfig.with_tpu("v4-8", cpu=2, ram="1g"))
    assert found == {"CPU": 2, "memory": 2**30, "TPU": 4, "TPU-v4-8-head": 1}
    assert "TPU-v4-16-head" not in host_resources(ResourceConfig.with_tpu("v4-16"))


def test_what_a_cluster_has_not_enough_of_is_named() -> None:
    asked = {"CPU": 4.0, "memory": 3.0 * 2**30, "TPU": 4.0}
    assert lacking(asked, {"CPU": 1.5, "memory": 2**30, "TPU": 8.0}) == (
        "waits for CPU (4 requested, 1.5 free), memory (3 GiB requested, 1 GiB free)"
    )
    assert lacking(asked, {"CPU": 4.0, "memory": 2**40}) == "waits for TPU (4 requested, 0 free)"
    assert lacking(asked, {**asked, "GPU": 1.0}) == ""


def test_gpus_are_rays_own_and_of_the_type_asked_for() -> None:
    options = task_options(host_resources(ResourceConfig.with_gpu("H100", count=8, cpu=4, ram="1g")))
    resources = {"accelerator_type:H100": 0.001}
    assert options == {"num_cpus": 4, "memory": 2**30, "num_gpus": 8, "resources": resources}


def test_the_shortfall_names_the_nearest_node() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 4}},
        {"Alive": True, "Resources": {"CPU": 16, "TPU": 4}},
        {"Alive": False, "Resources": {"CPU": 64, "TPU": 8}},
    ]
    assert shortfall({"CPU": 16, "TPU": 4}, nodes) is None
    assert shortfall({"CPU": 8, "TPU": 8}, nodes) == "TPU: 8 requested, 4 available"
    assert shortfall({"CPU": 1}, []) == "the cluster has no node"


def test_no_other_ray_is_installed(caplog: pytest.LogCaptureFixture) -> None:
    given = ["ray==2.1", "Ray[data]>=2", "ray @ file:///x.whl", "raydium", "ray-tools", "numpy"]
    with caplog.at_level(logging.WARNING):
        assert without_ray(given, "j") == ("raydium", "ray-tools", "numpy")
    assert "'ray==2.1' is not installed" in caplog.text


def test_the_budget_is_no_reason_for_processes_of_its_own(tmp_path: Path) -> None:
    environment = EnvironmentConfig(workspace=str(tmp_path), env_vars={"A": "1", "MARIN_MIRROR_BUDGET_GB": "2.0"})
    around = resolve_environment(environment, ResourceConfig(), {"MARIN_MIRROR_BUDGET_GB": "10"}, "j")
    assert around.runtime_env == {"env_vars": {"A": "1"}}
    assert around.late_env == {"MARIN_MIRROR_BUDGET_GB": "2.0"}
    with_packages = EnvironmentConfig(workspace=str(tmp_path), pip_packages=["numpy"])
    runtime_env = resolve_environment(with_packages, ResourceConfig(), {}, "j").runtime_env
    assert runtime_env is not None
    assert list(runtime_env["env_vars"]) == [PACKAGES_ENV]


def test_extras_and_members_of_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["lib/*"]\n')
    member = tmp_path / "lib" / "one"
    (member / "src").mkdir(parents=True)
    (member / "pyproject.toml").write_text('[project]\nname = "one"\n[project.optional-dependencies]\ntpu = ["jax"]\n')
    assert member_paths(str(tmp_path)) == [str(tmp_path), str(member / "src")]
    assert extra_packages(str(tmp_path), ["tpu"]) == ["jax"]
    with pytest.raises(InvalidRequest, match=r"extra 'gpu' is not defined.*known: tpu"):
        extra_packages(str(tmp_path), ["gpu"])


def test_the_import_path_of_a_ray_job_is_kept_for_the_jobs_in_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["lib/*"]\n')
    member = tmp_path / "lib" / "one"
    member.mkdir(parents=True)
    (member / "pyproject.toml").write_text('[project]\nname = "one"\n')
    environment = EnvironmentConfig(workspace=str(tmp_path))
    mine = {"PYTHONPATH": f"submodules/x:/tmp/fray-ray-packages-0/py3-1:{tmp_path}"}
    own = [str(tmp_path), str(member)]
    for mark, paths in (
        ("RAY_JOB_CONFIG_JSON_ENV_VAR", [*own, "submodules/x"]),
        ("FRAY_RAY_NAMESPACE", [*own, "submodules/x"]),
        ("ANOTHER", own),
    ):
        around = resolve_environment(environment, ResourceConfig(), {}, "j", environ={**mine, mark: "x"})
        assert around.runtime_env == {"env_vars": {"PYTHONPATH": ":".join(paths)}}
