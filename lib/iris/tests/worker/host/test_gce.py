"""What a host is at Google, and what it tells of its start."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from iris.local.standalone_worker import WorkerOptions, start_worker
from iris.worker.host.gce import GceIdentity, read_identity
from iris.worker.host.preemption import Platform
from rigging.errors import InvalidRequest
from rigging.topology import TPU_TOPOLOGIES
from support.google.metadata import MetadataServer
from support.iris.host_cluster import fake_devices

VM = {"instance/name": "cpu-3", "instance/zone": "projects/1/zones/us-east1-d"}
HOST = VM | {
    "instance/name": "t1v-n-1234-w-2",
    "instance/attributes/agent-worker-number": "2",
    "instance/attributes/instance-id": "v5e-7",
    "instance/attributes/accelerator-type": "v5litepod-16",
}


@pytest.mark.parametrize(
    ("values", "is_what"),
    [(VM, GceIdentity("cpu-3", 0, "us-east1-d")), (HOST, GceIdentity("v5e-7", 2, "us-east1-d", "v5litepod-16"))],
)
def test_a_host_knows_what_it_is(values: dict[str, str], is_what: GceIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    with MetadataServer(values) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.address)
        assert read_identity() == is_what
    assert is_what.attributes == {"zone": "us-east1-d", "region": "us-east1"}
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(InvalidRequest, match="--platform gce, but no metadata server"):
        read_identity()


@pytest.mark.parametrize("name", [topology.name for topology in TPU_TOPOLOGIES])
def test_a_host_of_every_tpu_type_knows_it_also_from_tpu_env_alone(name: str) -> None:
    place = {key.removeprefix("instance/"): value for key, value in HOST.items()}
    told = place | {"attributes/accelerator-type": name}
    less = {key: told[key] for key in ("name", "zone", "attributes/instance-id")}
    less["attributes/tpu-env"] = f"ACCELERATOR_TYPE: '{name}'\nNODE_ID: 'v5e-7'\nWORKER_ID: '2'\nZONE: 'us-east1-d'"

    def asking(values: dict[str, str], key: str) -> str:
        if key not in values:
            raise FileNotFoundError(key)
        return values[key]

    for values in (told, less):
        assert read_identity(partial(asking, values)) == GceIdentity("v5e-7", 2, "us-east1-d", name)


def test_a_worker_that_cannot_start_says_so_where_operators_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris.local.standalone_worker.hide_own_environment", lambda: None)
    with MetadataServer(HOST, {"enable-guest-attributes": "TRUE"}) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.address)
        options = WorkerOptions("10.255.255.1:7077", tmp_path / "work", platform=Platform.GCE, dev=tmp_path / "dev")
        with pytest.raises(InvalidRequest, match="--tpu v5litepod-16 declares 4 TPU chips, and this host has 0"):
            start_worker(options)
        with pytest.raises(InvalidRequest, match="--tpu v4-8, and the metadata server says v5litepod-16"):
            start_worker(replace(options, tpu="v4-8"))
        fake_devices(tmp_path / "dev")
        with pytest.raises(InvalidRequest, match="has no credential yet"):
            start_worker(options)
        assert server.guest["iris", "phase"].startswith(f"failed: {tmp_path}/work has no credential yet: give --join")
