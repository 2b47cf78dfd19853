"""What everyone imports stays light: no backend, no gRPC, no heavy library comes along."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

HEAVY = ("grpc", "ray", "draccus", "numpy", "google.protobuf", "sqlite3", "gcsfs", "s3fs")


def loaded_by(module: str) -> set[str]:
    # Not what the interpreter itself begins with, which differs from installation to installation.
    program = f"import sys, json; own = set(sys.modules); import {module}; print(json.dumps([*{{*sys.modules}} - own]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("module", "also_forbidden"),
    [
        ("fray", ("iris", "marin", "logging", "pickle", "traceback", "uuid")),
        ("rigging.filesystem", ("fray", "iris", "marin")),
        ("rigging.distributed_lock", ("fray", "iris", "marin")),
        ("marin.execution", ("iris",)),
        ("marin.cli.main", ("iris", "fray", "fsspec", "marin.execution")),
        ("iris.cli.main", ("fray", "marin")),
        ("iris.cluster.types", ("fray", "marin")),
        ("iris.autoscale.gcp.provider", ("fray", "marin", "google.cloud", "googleapiclient", "aiohttp")),
    ],
)
def test_importing_it_brings_nothing_heavy(module, also_forbidden):
    loaded = loaded_by(module)
    assert not [heavy for heavy in (*HEAVY, *also_forbidden) if heavy in loaded]


# Libraries of Python's own that cost a tenth of a second to import where fray costs half of that.
YARDSTICK = "asyncio, argparse, dataclasses, http.client, json, logging.config, subprocess, tempfile"


def test_importing_fray_costs_no_more_than_a_tenth_of_a_second(tmp_path):
    # All from compiled files, as a user has them; the first run of each compiles.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def cost(modules: str) -> float:
        program = f"import time; begin = time.process_time(); import {modules}; print(time.process_time() - begin)"
        command = [sys.executable, "-c", program]
        return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)

    # By turns, and the best of each: beside much else a machine takes up to twice as long over the same instructions.
    runs = [(cost("fray"), cost(YARDSTICK)) for _ in range(4)]
    assert min(fray for fray, _ in runs) <= min(yardstick for _, yardstick in runs), runs
