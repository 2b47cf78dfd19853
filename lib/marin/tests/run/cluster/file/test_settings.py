"""The settings of clusters, the files made from them, and what is refused."""

import copy
import dataclasses
from pathlib import Path

import pytest
import yaml
from ray.autoscaler._private.gcp.node_provider import GCPNodeProvider
from ray.autoscaler._private.util import prepare_config, validate_config

from marin.run.cluster.cli.commands import main
from marin.run.cluster.file.render import render, worker_resources
from marin.run.cluster.file.settings import ClusterSettings, WorkerSettings, read_settings
from marin.run.cluster.file.validate import find_mistakes
from rigging.errors import InvalidRequest

INFRA = Path(__file__).parents[6] / "infra"
TEMPLATE = (INFRA / "marin-cluster-template.yaml").read_text()
SETTINGS = """\
default = "one"

[common]
project = "p"
image = "rayproject/ray:2.60.0-py311-cpu"

[clusters.one]
zone = "us-central2-b"
workers = [{ tpu = "v4-8", min = 1, max = 2 }]
"""


def folder(path: Path, settings: str = SETTINGS, template: str = TEMPLATE) -> Path:
    (path / "clusters.toml").write_text(settings)
    (path / "marin-cluster-template.yaml").write_text(template)
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('zone = "us-central2-b"', 'zone = "us-central-2b"', "zone 'us-central-2b' is not a zone; write e.g. 'us-"),
        ("[clusters.one]", '[clusters.one]\nprefix = "/data"', "prefix '/data' is in no bucket; write gs://BUCKET"),
        ('zone = "us-central2-b"\n', "", "cluster one lacks zone"),
        ('zone = "us-central2-b"', 'zone = "asia-east1-c"', "no bucket is known for region asia-east1"),
        ('image = "rayproject', 'imege = "rayproject', "unknown key 'imege'; did you mean 'image'?"),
        ("min = 1", "mim = 1", "a worker has an unknown key 'mim'; did you mean 'min'?"),
        ("min = 1", "min = 3", "v4-8: min 3 is above max 2"),
        ("min = 1", "min = true", "min must be a whole number, not True"),
        ("min = 1", 'capacity = "spot"', "capacity 'spot' is not one of preemptible, reserved, on-demand"),
        ('"v4-8"', '"v4-9"', "unknown TPU type 'v4-9'; valid v4 types: v4-8, v4-16"),
        ('"v4-8", min = 1', "7", "tpu must be a text, not 7"),
        ("[clusters.one]", "[clusters.One_]", "cluster 'One_': a name has small letters"),
        ('default = "one"', 'default = "two"', "default 'two' is not one of the clusters one"),
        ('default = "one"', 'default = "one"\nclutsers = 1', "unknown key 'clutsers'; did you mean 'clusters'?"),
        ("workers = [", "workers = 3 # [", "workers 3 is not a list"),
        ("[clusters.one]", "[clusters]\none = 7\n[clusters.two]", "7 is not a table"),
        ("workers = [", "workers = [] # [", "cluster one: it has no workers"),
        (
            "min = 1, max = 2 }",
            'max = 2 }, { tpu = "v4-8", max = 1}',
            "two workers have the same TPU type and capacity",
        ),
        ("default =", "default", "cannot be read"),
        # They went into YAML and into what root's shell runs on each VM as they were.
        ('project = "p"', 'project = "p: {x"', "cluster one: project 'p: {x' cannot be one; write e.g. 'my-project'"),
        ("py311-cpu", "; touch x", "image 'rayproject/ray:2.60.0-; touch x' cannot be one"),
        ("[clusters.one]", "[clusters.one]\nprefix = 'gs://b\"; touch x'", "prefix 'gs://b\"; touch x' cannot be one"),
        ("[clusters.one]", '[clusters.one]\nssh_user = "a; b"', "ssh_user 'a; b' cannot be one"),
        ("[clusters.one]", '[clusters.one]\nhead_machine = "n2 standard"', "head_machine 'n2 standard' cannot be one"),
        ("[clusters.one]", '[clusters.one]\nhead_image = ""', "head_image '' cannot be one"),
        ("[clusters.one]", "[clusters.one]\nupscaling_speed = nan", "upscaling_speed must be a number from 0, not nan"),
        ("[clusters.one]", "[clusters.one]\nupscaling_speed = -1", "upscaling_speed must be a number from 0, not -1"),
        ("[clusters.one]", "[clusters.one]\nidle_timeout_minutes = -1", "idle_timeout_minutes must be a whole number"),
    ],
)
def test_mistakes_name_the_place_the_value_and_what_is_allowed(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in SETTINGS
    path = folder(tmp_path, SETTINGS.replace(old, new)) / "clusters.toml"
    with pytest.raises(InvalidRequest) as caught:
        read_settings(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_empty_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["list"]) == 0
    assert "there are no cluster files; looked in infra, " in capsys.readouterr().err


def test_a_cluster_overrides_what_is_common(tmp_path: Path) -> None:
    text = SETTINGS.replace("[clusters.one]", '[clusters.one]\nimage = "mine:1"\nprefix = "gs://b"\ntoken_auth = false')
    settings = read_settings(folder(tmp_path, text) / "clusters.toml").clusters["one"]
    made = yaml.safe_load(render(TEMPLATE, settings))
    assert (made["docker"]["image"], made["idle_timeout_minutes"]) == ("mine:1", 10)
    assert {"-e MARIN_PREFIX=gs://b", "-e RAY_AUTH_MODE=disabled"} <= set(made["docker"]["run_options"])


def test_a_head_that_keeps_the_history_of_jobs_has_a_folder_of_its_machine_for_it(tmp_path: Path) -> None:
    """On the VM, which outlives the container; one that each image's user may write to; Ray's words for it."""
    found = read_settings(folder(tmp_path) / "clusters.toml").clusters["one"]
    without = yaml.safe_load(render(TEMPLATE, found))
    made = yaml.safe_load(render(TEMPLATE, dataclasses.replace(found, keep_job_history=True)))
    assert find_mistakes(made) == []
    validate_config(GCPNodeProvider.fillout_available_node_types_resources(prepare_config(copy.deepcopy(made))))
    assert made["docker"].pop("head_run_options") == ["-v /opt/marin-ray-history:/opt/marin-ray-history"]
    made["initialization_commands"].remove("sudo install -d -m 1777 /opt/marin-ray-history")
    stop, start = made["head_start_ray_commands"]
    storage = " RAY_gcs_storage=rocksdb RAY_gcs_storage_path=/opt/marin-ray-history/gcs"
    assert storage in start.partition(";")[0]
    made["head_start_ray_commands"] = [stop, start.replace(storage, "")]
    assert made == without


@pytest.mark.parametrize(
    ("tpu", "resources"),
    [
        ("v4-8", {"CPU": 120, "TPU": 4, "TPU-v4-8-head": 1}),
        ("v4-32", {"CPU": 120, "TPU": 4, "TPU-v4-32-head": 1}),
        ("v5litepod-1", {"CPU": 24, "TPU": 1, "TPU-v5litepod-1-head": 1}),
        ("v5litepod-8", {"CPU": 120, "TPU": 8, "TPU-v5litepod-8-head": 1}),
        ("v5litepod-16", {"CPU": 112, "TPU": 4, "TPU-v5litepod-16-head": 1}),
        ("v5p-8", {"CPU": 120, "TPU": 4, "TPU-v5p-8-head": 1}),
        ("v6e-8", {"CPU": 120, "TPU": 8, "TPU-v6e-8-head": 1}),
    ],
)
def test_resources_are_those_of_one_host_and_no_more_cpus_than_it_has(tpu: str, resources: dict[str, int]) -> None:
    assert worker_resources(tpu, 120) == resources


@pytest.mark.parametrize(
    ("capacity", "name", "scheduling"),
    [
        ("preemptible", "tpu_v5p_8", {"preemptible": True}),
        ("reserved", "tpu_v5p_8_reserved", {"reserved": True}),
        ("on-demand", "tpu_v5p_8_on_demand", {"preemptible": False}),
    ],
)
def test_how_tpus_are_had(tmp_path: Path, capacity: str, name: str, scheduling: dict[str, bool]) -> None:
    text = SETTINGS.replace('tpu = "v4-8"', f'tpu = "v5p-8", capacity = "{capacity}"')
    settings = read_settings(folder(tmp_path, text) / "clusters.toml").clusters["one"]
    config = yaml.safe_load(render(TEMPLATE, settings))["available_node_types"][name]["node_config"]
    assert config == {"acceleratorType": "v5p-8", "runtimeVersion": "v2-alpha-tpuv5", "schedulingConfig": scheduling}


def test_a_template_must_use_each_value_and_no_other() -> None:
    settings = ClusterSettings("a", "p", "us-east1-d", "i", (WorkerSettings("v6e-4", max=1),))
    with pytest.raises(InvalidRequest, match="names unknown values regoin"):
        render(TEMPLATE.replace("{{region}}", "{{regoin}}"), settings)
    with pytest.raises(InvalidRequest, match="leaves out marin_prefix"):
        render(TEMPLATE.replace("{{marin_prefix}}", "gs://x"), settings)


def test_generate_makes_what_differs_and_tells_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate = ["generate", "--dir", str(tmp_path)]

    def said(code: int, *words: str) -> str:
        assert main([*generate, *words]) == code
        told = capsys.readouterr()
        return told.out + told.err

    assert "has no clusters.toml" in said(4)
    folder(tmp_path, template=TEMPLATE.replace("{{project}}", "{ {{project}}"))
    assert "marin-cluster.yaml, as marin-cluster-template.yaml makes it" in said(3)
    folder(tmp_path)
    assert "marin-cluster.yaml, marin-one.yaml" in said(3, "--check")
    assert not list(tmp_path.glob("marin-*one*")), "nothing was changed"
    made = [str(tmp_path / "marin-cluster.yaml"), str(tmp_path / "marin-one.yaml")]
    assert said(0).split() == made
    assert said(0, "--check") == "2 files are up to date\n"
    (tmp_path / "marin-old.yaml").write_text("cluster_name: marin-old\n")
    assert "marin-old.yaml" in said(3, "--check")
    told = said(0)
    assert (
        "marin-old.yaml: no cluster in the settings generates this file; take its cluster down before you remove it"
        in told
    )
    assert (tmp_path / "marin-old.yaml").exists(), "nothing is removed"
    folder(tmp_path, SETTINGS.replace('tpu = "v4-8"', 'tpu = "v4-8", capacity = "reserved"'))
    assert "worker type 'tpu_v4_8' is gone: running nodes are labelled" in said(0), "a rename is warned of"
    (tmp_path / "marin-cluster-template.yaml").unlink()
    assert "marin-cluster-template.yaml cannot be read" in said(3)
