"""The cluster files of this repository: made by the generator, and taken by Ray."""

import inspect
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import googleapiclient
import pytest
import ray
import yaml
from googleapiclient import discovery
from ray._private.accelerators.tpu import get_num_tpu_visible_chips_per_host
from ray.autoscaler._private.gcp import config as gcp_config
from ray.autoscaler._private.gcp import node as gcp_node
from ray.autoscaler._private.gcp.node_provider import GCPNodeProvider
from ray.autoscaler._private.gcp.tpu_command_runner import TPUVMSSHCommandRunner
from ray.autoscaler._private.util import prepare_config, validate_config, with_envs

from marin.run.cluster.cli.commands import main
from marin.run.cluster.file import node_config_keys
from marin.run.cluster.file.render import worker_resources
from marin.run.cluster.file.validate import find_mistakes
from rigging.topology import TPU_TOPOLOGIES, get_tpu_topology
from support.google.server import GoogleServer

INFRA = Path(__file__).parents[6] / "infra"
FILES = sorted(path.name for path in INFRA.glob("marin-*.yaml") if not path.stem.endswith("-template"))

IN_SHORT = ("marin-cluster.yaml", "marin-us-west4.yaml")


def read(name: str) -> Any:
    return yaml.safe_load((INFRA / name).read_text())


@pytest.fixture
def gcp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GoogleServer]:
    with GoogleServer() as server:

        class Discovery:
            @staticmethod
            def build(name: str, version: str, **options: Any) -> Any:
                options.pop("discoveryServiceUrl", None)
                endpoint = server.address + ("/compute/v1/" if name == "compute" else "")
                options["client_options"] = {"api_endpoint": endpoint}
                # The client has no description of v2alpha with it; what Ray calls is the same in v2.
                return discovery.build(name, "v2" if name == "tpu" else version, static_discovery=True, **options)

        monkeypatch.setattr(gcp_config, "discovery", Discovery)
        monkeypatch.setattr(gcp_node, "POLL_INTERVAL", 0.001)
        monkeypatch.setenv("HOME", str(tmp_path))
        yield server


def as_ray_up(name: str) -> Any:
    config = read(name)
    config["provider"]["gcp_credentials"] = {"type": "credentials_token", "credentials": "t"}
    prepared = GCPNodeProvider.fillout_available_node_types_resources(prepare_config(config))
    validate_config(prepared)
    return GCPNodeProvider.bootstrap_config(prepared)


def test_the_files_are_as_the_generator_makes_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--check", "--dir", str(INFRA)]) == 0
    assert capsys.readouterr().out == f"{len(FILES)} files are up to date\n"


@pytest.mark.parametrize("name", FILES)
def test_ray_takes_each_file(name: str) -> None:
    config = read(name)
    assert find_mistakes(config) == []
    prepared = prepare_config(config)
    filled = GCPNodeProvider.fillout_available_node_types_resources(prepared)
    validate_config(filled)
    # Nothing is left to Ray's guesses or to its defaults.
    for node_type, given in config["available_node_types"].items():
        assert filled["available_node_types"][node_type]["resources"] == given["resources"]
    defaults = {"file_mounts", "file_mounts_sync_continuously", "rsync_exclude", "rsync_filter"}
    assert set(filled) - set(config) <= {*defaults, "head_node", "worker_nodes"}


@pytest.mark.parametrize(
    "name", [name if name in IN_SHORT else pytest.param(name, marks=pytest.mark.soak) for name in FILES]
)
def test_the_provider_makes_a_node_of_each_type(gcp: GoogleServer, name: str) -> None:
    config = as_ray_up(name)
    provider = GCPNodeProvider(config["provider"], config["cluster_name"])
    for node_type, described in config["available_node_types"].items():
        kind = "head" if node_type == config["head_node_type"] else "worker"
        name = f"ray-{config['cluster_name']}-{kind}"
        tags = {"ray-node-name": name, "ray-node-type": kind, "ray-user-node-type": node_type}
        provider.create_node({**described["node_config"], **(config["head_node"] if kind == "head" else {})}, tags, 1)
    (head,) = gcp.cloud.instances.values()
    assert head["machineType"].endswith("/n2-standard-8")
    assert head["disks"][0]["initializeParams"]["diskSizeGb"] == 200
    assert head["scheduling"]["provisioningModel"] == "STANDARD"
    made = {found["labels"]["ray-user-node-type"]: found for found in gcp.cloud.nodes.values()}
    for node_type, found in made.items():
        resources = config["available_node_types"][node_type]["resources"]
        accelerator = found["acceleratorType"]
        assert resources["TPU"] * len(found["networkEndpoints"]) == get_tpu_topology(accelerator).chip_count
        assert resources[f"TPU-{accelerator}-head"] == 1
    assert len(made) == len(config["available_node_types"]) - 1
    for node in provider.non_terminated_nodes({}):
        provider.terminate_node(node)
    gcp.settle()
    assert (gcp.cloud.instances, gcp.cloud.nodes) == ({}, {})


GCLOUD = """#!/bin/bash
# `gcloud storage` with a folder as all buckets.
file=$STORE/${@: -1}
case "$2" in
  ls) [ -f "$file" ] ;;
  cat) cat "$file" ;;
  cp) [ "$3 $4" = "--if-generation-match=0 -" ] && mkdir -p "$(dirname "$file")" && (set -o noclobber; cat > "$file") ;;
esac
"""


def test_the_documents_cluster() -> None:
    config = read("marin-cluster.yaml")
    assert config["provider"]["availability_zone"] == "us-central2-b"
    worker = config["available_node_types"]["tpu_v4_8"]
    assert (worker["min_workers"], worker["max_workers"]) == (4, 64)
    assert worker["resources"] == {"CPU": 120, "TPU": 4, "TPU-v4-8-head": 1}
    assert config["available_node_types"][config["head_node_type"]]["resources"] == {"CPU": 0}
    options = " ".join(config["docker"]["run_options"])
    assert "MARIN_PREFIX=gs://marin-us-central2" in options
    assert "RAY_AUTH_MODE=token" in options


@pytest.mark.parametrize("name", IN_SHORT)
def test_the_first_node_makes_the_token_and_all_have_it(name: str, tmp_path: Path) -> None:
    config = read(name)
    (command,) = [line for line in config["initialization_commands"] if "auth_token" in line]
    for program, text in (("gcloud", GCLOUD), ("sudo", '#!/bin/sh\nexec "$@"\n')):
        (tmp_path / program).write_text(text)
        (tmp_path / program).chmod(0o755)
    tokens = []
    for node in ("head", "worker"):
        here = command.replace("/opt/marin-ray", str(tmp_path / node))
        variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "STORE": str(tmp_path / "store")}
        subprocess.run(["bash", "-c", here], env=variables, check=True)
        tokens.append((tmp_path / node / "auth_token").read_text())
    assert tokens[0] == tokens[1]
    assert re.fullmatch(r"[0-9a-f]{64}", tokens[0])
    url = f"{config['docker']['run_options'][3].partition('=')[2]}/ray/{config['cluster_name']}/auth_token"
    assert (tmp_path / "store" / url).read_text() == tokens[0]
    options = config["docker"]["run_options"]
    assert {"-e RAY_AUTH_TOKEN_PATH=/opt/marin-ray/auth_token", "-v /opt/marin-ray:/opt/marin-ray:ro"} <= set(options)


def test_the_start_of_the_head_chooses_the_autoscaler_that_works() -> None:
    start = with_envs(read("marin-cluster.yaml")["head_start_ray_commands"], {"RAY_enable_autoscaler_v2": "1"})[-1]
    before, _, after = start.partition("RAY_enable_autoscaler_v2=0")
    assert "RAY_enable_autoscaler_v2=1" in before
    assert after.index("AUTOSCALER_HEARTBEAT_TIMEOUT_S=300") < after.index("ray start --head")
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in after


def test_the_keys_of_a_node_config_are_those_of_the_apis() -> None:
    documents = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
    tpu = json.loads((documents / "tpu.v2.json").read_text())["schemas"]
    compute = json.loads((documents / "compute.v1.json").read_text())["schemas"]
    for names, schema in (
        (node_config_keys.TPU_NODE, tpu["Node"]),
        (node_config_keys.TPU_SCHEDULING, tpu["SchedulingConfig"]),
        (node_config_keys.TPU_NETWORK, tpu["NetworkConfig"]),
        (node_config_keys.TPU_ACCELERATOR, tpu["AcceleratorConfig"]),
        (node_config_keys.INSTANCE - {"sourceInstanceTemplate"}, compute["Instance"]),
        (node_config_keys.DISK, compute["AttachedDisk"]),
        (node_config_keys.DISK_PARAMETERS, compute["AttachedDiskInitializeParams"]),
        (node_config_keys.SCHEDULING, compute["Scheduling"]),
        (node_config_keys.NETWORK_INTERFACE, compute["NetworkInterface"]),
    ):
        assert names <= set(schema["properties"])


def test_what_ray_says_of_images_types_and_files_is_what_the_settings_rely_on() -> None:
    """Why the token goes another way than by `cluster_synced_files`: when that fails, they may do."""
    assert "silent" not in inspect.signature(TPUVMSSHCommandRunner.run).parameters
    for name in FILES:
        assert not read(name)["cluster_synced_files"]
        assert not read(name).get("file_mounts")
        assert f":{ray.__version__}-py311" in read(name)["docker"]["image"], "change clusters.toml, then generate"
    for topology in TPU_TOPOLOGIES:
        assert get_num_tpu_visible_chips_per_host(topology.name) == worker_resources(topology.name, 120)["TPU"]
