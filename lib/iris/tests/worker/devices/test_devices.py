"""Accelerators of a host: what is found in a fake /dev, what is refused, and who gets which chips."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from iris.domain.resources import Device, Resources
from iris.local.declared_devices import declared_device
from iris.worker.devices.allotment import Allotment, Chips, ChipsHeld
from iris.worker.devices.found import Chip, Gpu, check_devices, find_chips
from iris.worker.devices.gang import gang_variables
from iris.worker.devices.holders import open_in, remove_stale_lock
from iris.worker.types import Gang, Launch, StartRequest
from rigging.errors import InvalidRequest
from rigging.topology import TPU_TOPOLOGIES


def fake_dev(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def chips_of(dev: Path, number: int, kind: str = "tpu") -> Chips:
    device = Device(kind, "v5litepod-8" if kind == "tpu" else "H100", number)
    name = "accel{}" if kind == "tpu" else "nvidia{}"
    return Chips(device, find_chips(kind, fake_dev(dev, *(name.format(index) for index in range(number)))))


def never() -> NoReturn:
    raise AssertionError("NVML is asked")


@pytest.mark.parametrize("name", [topology.name for topology in TPU_TOPOLOGIES])
def test_a_host_of_every_tpu_type_has_its_chips_and_one_less_is_refused(tmp_path: Path, name: str) -> None:
    form = "vfio/{}" if name.startswith(("v5litepod", "v6e")) else "accel{}"
    declared = declared_device(name, None)
    assert declared is not None
    fake_dev(tmp_path, "vfio/vfio", "null", *(form.format(9 + index) for index in range(declared.count)))
    found = check_devices(declared, tmp_path, never)
    assert [chip.name for chip in found] == [str(index) for index in range(declared.count)]
    assert [Path(chip.node).name for chip in found] == [
        Path(form.format(9 + index)).name for index in range(declared.count)
    ]
    Path(found[0].node).unlink()
    words = f"--tpu {name} declares {declared.count} TPU chips, and this host has {declared.count - 1}"
    with pytest.raises(InvalidRequest, match=words):
        check_devices(declared, tmp_path, never)


def test_gpus_have_the_uuids_of_nvml_and_too_few_or_others_are_refused(tmp_path: Path) -> None:
    gpus = tuple(Gpu(f"GPU-{minor}", "NVIDIA H100 80GB HBM3", minor) for minor in (1, 0))
    declared = Device("gpu", "H100", 2)
    with pytest.raises(InvalidRequest, match=r"--gpu H100:2 declares 2 GPU chips, and this host has 0 .*nvidia\*"):
        check_devices(declared, tmp_path, never)
    fake_dev(tmp_path, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
    assert [chip.name for chip in check_devices(declared, tmp_path, lambda: gpus)] == ["GPU-0", "GPU-1"]

    def broken() -> NoReturn:
        raise OSError("no driver")

    assert [chip.name for chip in check_devices(declared, tmp_path, broken)] == ["0", "1"]
    with pytest.raises(InvalidRequest, match=r"--gpu H100:3 declares 3 .* or --gpu H100:2"):
        check_devices(Device("gpu", "H100", 3), tmp_path, never)
    with pytest.raises(InvalidRequest, match="--gpu A100:1 declares A100, and this host has NVIDIA H100"):
        check_devices(Device("gpu", "A100", 1), tmp_path, lambda: gpus)
    assert check_devices(None, tmp_path, never) == ()
    amd = fake_dev(tmp_path / "amd", "kfd", "dri/renderD128")
    with pytest.raises(
        InvalidRequest, match=r"--gpu MI300X:1: this host has AMD GPUs .*, and iris allots GPUs of NVIDIA"
    ):
        check_devices(Device("gpu", "MI300X", 1), amd, never)
    assert "pynvml" not in sys.modules


@pytest.mark.parametrize(
    ("kind", "count", "variables"),
    [
        ("tpu", 1, {"TPU_VISIBLE_CHIPS": "4", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}),
        ("tpu", 2, {"TPU_VISIBLE_CHIPS": "4,5", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,2,1"}),
        ("tpu", 4, {"TPU_VISIBLE_CHIPS": "4,5,6,7", "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1"}),
        ("gpu", 3, {"CUDA_VISIBLE_DEVICES": "4,5,6"}),
    ],
)
def test_attempts_get_chips_of_their_own(tmp_path: Path, kind: str, count: int, variables: dict[str, str]) -> None:
    allotment = Allotment(chips_of(tmp_path, 8, kind))
    assert allotment.take("first", Device(kind, count=4)) == ("0", "1", "2", "3")
    names = allotment.take("second", Device(kind, count=count))
    assert variables.items() <= allotment.variables(names).items()
    with pytest.raises(ChipsHeld, match="other attempts have"):
        allotment.take("third", Device(kind, count=8))
    inside = [f"nvidia.com/gpu={name}" if kind == "gpu" else str(tmp_path / f"accel{name}") for name in names]
    assert list(allotment.devices(names)) == inside, "what its container gets"
    allotment.release("first")
    allotment.release("second")
    whole = allotment.variables(allotment.take("third", Device(kind, count=8)))
    assert whole == ({} if kind == "tpu" else {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}), "libtpu knows the slice"
    assert allotment.take("cpu only", None) == ()


def test_libtpus_lock_goes_when_nobody_has_it_open(tmp_path: Path) -> None:
    lock = tmp_path / "libtpu_lockfile"
    remove_stale_lock(lock)
    with open(lock, "w"):
        assert "process" in open_in({str(lock)})[str(lock)]
        remove_stale_lock(lock)
        assert lock.exists()
    remove_stale_lock(lock)
    assert not lock.exists()


def test_no_file_of_a_chip_is_taken_for_another(tmp_path: Path) -> None:
    assert find_chips("gpu", fake_dev(tmp_path, "nvidia10", "nvidia9", "nvidia-modeset")) == (
        Chip("0", str(tmp_path / "nvidia9")),
        Chip("1", str(tmp_path / "nvidia10")),
    )


HOSTS = tuple(f"10.0.0.{index}" for index in range(8))
SLICE = ",".join(HOSTS[4:])


@pytest.mark.parametrize(
    ("device", "hosts", "variables"),
    [
        (Device("tpu", "v4-32", 4), HOSTS[:4], {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": ",".join(HOSTS[:4])}),
        (
            Device("tpu", "v4-32", 4),
            HOSTS,
            {
                "TPU_WORKER_ID": "1",
                "TPU_WORKER_HOSTNAMES": SLICE,
                "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.0:24756",
                "MEGASCALE_NUM_SLICES": "2",
                "MEGASCALE_PORT": "24756",
                "MEGASCALE_SLICE_ID": "1",
            },
        ),
        (
            Device("gpu", "H100", 8),
            HOSTS[:4],
            {"MASTER_ADDR": "mine", "MASTER_PORT": "24756", "NCCL_SOCKET_IFNAME": "=e1", "GLOO_SOCKET_IFNAME": "e1"},
        ),
        (None, ("", ""), {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "24756"}),
    ],
)
def test_members_of_a_gang_find_each_other(
    device: Device | None, hosts: tuple[str, ...], variables: dict[str, str]
) -> None:
    index = 5 if len(hosts) == 8 else 1
    own = {"MASTER_ADDR": "mine"} if variables.get("MASTER_ADDR") == "mine" else {}
    launch = Launch("/u/job", replicas=len(hosts), resources=Resources(device=device), env_vars=own)
    request = StartRequest(f"/u/job/{index}:3", f"/u/job/{index}", index, launch, gang=Gang(hosts, 3))
    found = gang_variables(request, {"10.0.0.1": "e1"}.get)  # type: ignore[arg-type]
    assert own | found == variables
    later = gang_variables(replace(request, gang=Gang(hosts, 4)), lambda _: "")
    assert {name for name in found if found[name] != later.get(name)} <= {
        *("MASTER_PORT", "MEGASCALE_PORT", "MEGASCALE_COORDINATOR_ADDRESS", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    }
    assert gang_variables(replace(request, gang=None), lambda _: "") == {}
