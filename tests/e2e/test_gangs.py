"""Four tasks as one program of JAX and of PyTorch, on CPUs; the coordinator's port is taken, and a member is killed."""

import importlib.util
import re
import socket
from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(300)]

BEGIN = """
import os, signal
from iris.runtime import initialize_torch
from iris.runtime.jax_init import initialize_jax

def kill_once():
    if os.environ["IRIS_ATTEMPT_ID"].endswith("/2:0"):
        os.kill(os.getpid(), signal.SIGKILL)
"""
JAX = """
initialize_jax(port={port})
kill_once()
import jax, jax.numpy as jnp
summed = jax.pmap(lambda value: jax.lax.psum(value, "i"), axis_name="i")(jnp.full((1,), jax.process_index() + 1.0))
print("sum", int(summed[0]), "master", os.environ["MASTER_ADDR"], flush=True)
"""
TORCH = """
initialize_torch(port={port})
kill_once()
import torch
value = torch.tensor([torch.distributed.get_rank() + 1.0])
torch.distributed.all_reduce(value)
print("sum", int(value[0]), "master", os.environ["MASTER_ADDR"], flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(("module", "script"), [("jax", JAX), ("torch", TORCH)])
def test_four_tasks_sum_over_all_though_a_port_is_taken_and_a_member_is_killed(
    cluster: Cluster, tmp_path: Path, module: str, script: str
) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: uv pip install {module}, then run this test again")
    with socket.create_server(("0.0.0.0", 0)) as taken:
        program = tmp_path / "program.py"
        program.write_text(BEGIN + script.format(port=taken.getsockname()[1]))
        words = "--no-workspace --replicas 4 --gang arch --cpu 0.1 --memory 600MB --max-retries 1 -e JAX_PLATFORMS cpu"
        done = cluster.iris("job", "run", *words.split(), "--", "python", str(program), timeout=240)
    assert done.code == 0, done.text
    assert re.findall(r"sum (\d+) master \S+", done.out) == ["10"] * 4, done.text
