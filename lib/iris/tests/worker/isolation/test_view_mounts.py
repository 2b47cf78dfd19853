"""What a guardian mounts for its tasks is seen by them only, also where mounts are shared, as under systemd."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

if os.geteuid() != 0 or shutil.which("unshare") is None:
    pytest.skip("needs root, to have a host with shared mounts", allow_module_level=True)

INNER = """
import sys
from pathlib import Path
from iris.worker.isolation.views import open_views
work_dir = Path(sys.argv[1])
print(open_views(work_dir).mode, flush=True)
sys.stdin.read()
"""
OUTER = """
import json, subprocess, sys
def mounts():
    return [line.split()[4] for line in open("/proc/self/mountinfo")]
before = mounts()
command = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
inner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert inner.stdout.readline()
after = mounts()
inner.communicate()
print(json.dumps([path for path in after if path not in before]))
"""


def test_the_host_sees_none_of_it(tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--propagation", "shared", sys.executable, "-c", OUTER, INNER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


MOUNT = (
    "mkdir a b c d && mount -t overlay overlay -o lowerdir=a,upperdir=b,workdir=c d && touch d/file && [ -e b/file ]"
)


def test_where_layers_can_be_mounted_they_are(tmp_path: Path) -> None:
    """Tests of layers are skipped where a worker finds none: one that never finds any would pass them all."""
    (tmp_path / "tried").mkdir()
    tried = subprocess.run(["unshare", "--mount", "sh", "-c", MOUNT], cwd=tmp_path / "tried", check=False, timeout=60)
    command = [sys.executable, "-c", INNER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, input="")
    assert (done.stdout.strip() == "overlay") == (tried.returncode == 0)
