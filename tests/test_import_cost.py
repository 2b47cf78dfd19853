"""What everyone imports stays light: no backend, no gRPC, no heavy library comes along."""

import json
import subprocess
import sys

import pytest

HEAVY = ("grpc", "ray", "draccus", "numpy", "google.protobuf", "sqlite3", "gcsfs", "s3fs")


def loaded_by(module: str) -> set[str]:
    program = f"import sys, json; import {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("module", "also_forbidden"),
    [
        ("fray", ("iris", "marin")),
        ("rigging.filesystem", ("fray", "iris", "marin")),
        ("rigging.distributed_lock", ("fray", "iris", "marin")),
        ("marin.execution", ("iris",)),
        ("iris.cli.main", ("fray", "marin")),
        ("iris.cluster.types", ("fray", "marin")),
    ],
)
def test_importing_it_brings_nothing_heavy(module, also_forbidden):
    loaded = loaded_by(module)
    assert not [heavy for heavy in (*HEAVY, *also_forbidden) if heavy in loaded]


def test_importing_fray_takes_no_more_than_a_tenth_of_a_second():
    program = "import time; begin = time.process_time(); import fray; print(time.process_time() - begin)"
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(3)
    ]
    # Processor time, and the best of some: what else the machine does is not fray's.
    assert min(float(run.stdout) for run in runs) <= 0.1
