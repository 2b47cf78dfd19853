"""Ray's own autoscaler with the documents' cluster, against a server of Google's APIs: slices come, go and come back,
and after `down` there are none.

Nodes are records only, and what the autoscaler would run on them is noted. It has a process of its own, as its threads
cannot be ended.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.process, pytest.mark.timeout(300)]

FILE = Path(__file__).parents[6] / "infra" / "marin-cluster.yaml"
SCRIPT = r"""
import json, os, sys, time, yaml
from unittest.mock import MagicMock
from googleapiclient import discovery
from ray.autoscaler._private import commands
from ray.autoscaler._private.autoscaler import StandardAutoscaler
from ray.autoscaler._private.gcp import config as gcp_config
from ray.autoscaler._private.gcp.node_provider import GCPNodeProvider
from ray.autoscaler._private.load_metrics import LoadMetrics
from ray.autoscaler._private.util import prepare_config
from marin.run.cluster.nodes.google import GoogleNodes
from marin.run.cluster.nodes.leftovers import remove_leftovers
from support.google.server import GoogleServer
from support.google.words import STOCK_OUT

server = GoogleServer().__enter__()
build = discovery.build

class Discovery:
    @staticmethod
    def build(name, version, **options):
        options.pop("discoveryServiceUrl", None)
        endpoint = server.address + ("/compute/v1/" if name == "compute" else "")
        options["client_options"] = {"api_endpoint": endpoint}
        return build(name, "v2" if name == "tpu" else version, static_discovery=True, **options)

gcp_config.discovery = Discovery
config = yaml.safe_load(open(sys.argv[1]))
config["provider"]["gcp_credentials"] = {"type": "credentials_token", "credentials": "t"}
written = json.loads(json.dumps(config))
config = GCPNodeProvider.fillout_available_node_types_resources(prepare_config(config))
config = GCPNodeProvider.bootstrap_config(config)
provider = GCPNodeProvider(config["provider"], config["cluster_name"])
head_type = config["available_node_types"][config["head_node_type"]]
provider.create_node(
    {**head_type["node_config"], **config["head_node"]},
    {"ray-node-name": "ray-head", "ray-node-type": "head", "ray-user-node-type": config["head_node_type"],
     "ray-node-status": "up-to-date"},
    1,
)
ran = []

class Runner:
    def check_call(self, command, *_, **__):
        ran.append(" ".join(command) if isinstance(command, list) else command)
    def call(self, command, *_, **__):
        self.check_call(command)
        return 0
    def check_output(self, command, *_, **__):
        self.check_call(command)
        return b"[]" if "Config.Env" in ran[-1] or "Mounts" in ran[-1] else b"docker"

loads = LoadMetrics()
scaler = StandardAutoscaler(
    lambda: json.loads(json.dumps(config)), loads, MagicMock(), update_interval_s=0, process_runner=Runner(),
    max_concurrent_launches=8,
)

def counts():
    with server.cloud.lock:
        ready = [found for found in server.cloud.nodes.values() if found["state"] == "READY"]
    types = [found["labels"]["ray-user-node-type"] for found in ready]
    return {name: types.count(name) for name in set(types)}

def run_until(wanted, demand=(), idle=0):
    deadline = time.monotonic() + 60
    while counts() != wanted:
        assert time.monotonic() < deadline, (counts(), wanted)
        for node in scaler.provider.non_terminated_nodes({}):
            address = scaler.provider.internal_ip(node)
            node_type = scaler.provider.node_tags(node)["ray-user-node-type"]
            resources = dict(config["available_node_types"][node_type]["resources"])
            loads.update(address, address.encode(), resources, dict(resources), idle)
        loads.waiting_bundles = list(demand)
        scaler.update()
        time.sleep(0.2)
    print("reached", sorted(counts().items()), flush=True)

minimum = {"tpu_v4_8": 4}
server.fail_next("POST .../nodes", STOCK_OUT, times=3)
run_until(minimum)
print("had to wait" if not server.failures_left else "was never refused")
server.preempt(next(iter(server.cloud.nodes)))
run_until(minimum)
pair = {"TPU": 4, "TPU-v4-16-head": 1}
run_until({**minimum, "tpu_v4_16": 1}, [pair])
deadline = time.monotonic() + 60
while not any("docker run" in line for line in ran):
    assert time.monotonic() < deadline, ran[-5:]
    time.sleep(0.1)
for line in list(ran):
    if "docker run" in line:
        print("ran", line.replace("\n", " "))
run_until({**minimum, "tpu_v4_16": 8}, [pair] * 20)
for _ in range(3):
    scaler.update()
    run_until({**minimum, "tpu_v4_16": 8}, [pair] * 20)
run_until(minimum, idle=601)

with open("cluster.yaml", "w") as file:
    yaml.safe_dump(written, file)
commands.POLL_INTERVAL = 0.05
commands.teardown_cluster(
    "cluster.yaml", yes=True, workers_only=False, override_cluster_name=None, keep_min_workers=False
)
states = [found["state"] for found in server.cloud.nodes.values()]
assert (states, server.cloud.instances) == (["PREEMPTED"], {}), "does Ray remove preempted slices now?"
nodes = GoogleNodes(written["provider"], endpoint=server.address)
remove_leftovers(
    nodes, config["cluster_name"], preempted_only=False, on_delete=lambda node: print("deleted", node.state)
)
print("left", len(server.cloud.nodes))
sys.stdout.flush()
os._exit(0)
"""


def test_minimum_preemption_demand_idle_slices_and_the_end(tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", SCRIPT, str(FILE)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    lines = done.stdout.splitlines()  # Ray's own are among them
    four, most = "('tpu_v4_8', 4)", "('tpu_v4_16', 8)"
    reached = [line.removeprefix("reached ") for line in lines if line.startswith("reached ")]
    after_preemption, with_demand = [f"[{four}]"] * 2, [f"[('tpu_v4_16', 1), {four}]", *[f"[{most}, {four}]"] * 4]
    assert reached == [*after_preemption, *with_demand, f"[{four}]"]
    start = next(line for line in lines if line.startswith("ran ") and "docker run" in line)
    assert "-e MARIN_PREFIX=gs://marin-us-central2 -e RAY_AUTH_MODE=token" in start
    assert "-e RAY_AUTH_TOKEN_PATH=/opt/marin-ray/auth_token -v /opt/marin-ray:/opt/marin-ray:ro" in start
    assert "had to wait" in lines, "slices that are not to be had are asked for again"
    assert [line for line in lines if line.startswith(("deleted ", "left "))] == ["deleted PREEMPTED", "left 0"]
