"""GPUs of this machine: NVML, what CUDA sees of an allotment, and NCCL. Skipped loudly where there are none."""

import os
import subprocess
import sys

import pytest

from iris.domain.resources import Device
from iris.worker.devices.allotment import Allotment, Chips
from iris.worker.devices.found import check_devices, find_chips, read_nvml
from iris.worker.devices.holders import gpu_holders

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not find_chips("gpu"), reason="no GPU here (/dev/nvidia*): run this file on a host with one"),
]
NCCL = """
import torch
torch.distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
value = torch.ones(1, device="cuda")
torch.distributed.all_reduce(value)
print(torch.cuda.device_count(), int(value[0]))
"""


def test_a_task_sees_only_its_gpu_and_is_seen_on_it() -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed: uv pip install nvidia-ml-py")
    pytest.importorskip("torch", reason="torch is not installed: uv pip install torch")
    gpus = read_nvml()
    assert len(gpus) == len(find_chips("gpu"))
    device = Device("gpu", gpus[0].model.split()[1], len(gpus))
    chips = check_devices(device)
    assert {chip.name for chip in chips} == {gpu.uuid for gpu in gpus}
    allotment = Allotment(Chips(device, chips, gpu_holders))
    environment = os.environ | allotment.variables(allotment.take("first", Device("gpu", count=1)))
    words = [sys.executable, "-c", NCCL + "input()"]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as task:
        assert task.stdin is not None
        assert task.stdout is not None
        assert task.stdout.readline() == "1 1\n"
        assert gpu_holders(chips)
        task.communicate("\n")
    assert task.returncode == 0
