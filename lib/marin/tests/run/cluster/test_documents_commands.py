"""The commands of the documents about Ray clusters, word for word, on a head of `ray up`'s local provider.

In namespaces of its own: Ray's usual ports, and /tmp/ray, are those of the head.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.marin.ssh import SshMachine

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.process, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[5]
DOCUMENTS = ROOT / "lib/marin/tests/run/documents"
APART = ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
SET_UP = "ip link set lo up && mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray"
RAY_RUN = "python marin/run/ray_run.py -- python experiments/hello_world.py"
HEAD_PORT = 9265


def commands() -> dict[str, str]:
    """The lines that call `ray`, by their commands."""
    text = "".join((DOCUMENTS / name).read_text() for name in ("infra-readme.md", "internal-developers.md"))
    found = [line.strip() for line in text.splitlines() if line.startswith("ray ")]
    return {" ".join(re.findall(r"^ray (job \w+|\w+)", line)): line for line in found}


@pytest.fixture
def machine(tmp_path: Path) -> SshMachine:
    """A user's machine in a project with infra/marin-cluster.yaml, and a head that has this environment."""
    try:
        done = subprocess.run([*APART, "sh", "-c", SET_UP], capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        pytest.skip("NOT TESTED: there is no `unshare` here to keep a head apart")
    if done.returncode:
        pytest.skip(f"NOT TESTED: no namespaces of its own to be had: {done.stderr.strip()}")
    found = SshMachine(tmp_path, HEAD_PORT)
    start = (
        "ulimit -n 65536; ray start --head --port=6379 --autoscaling-config=~/ray_bootstrap_config.yaml "
        f"--num-cpus 4 --dashboard-port={HEAD_PORT}"
    )
    found.write(head_start_ray_commands=["ray stop", start])
    (found.head / ".bashrc").write_text(f"export PATH={Path(sys.executable).parent}:$PATH\n")
    for folder in ("infra", "tests"):
        (tmp_path / "project" / folder).mkdir(parents=True)
    found.file.rename(tmp_path / "project/infra/marin-cluster.yaml")
    (tmp_path / "project/tests/test_ray_cluster.py").write_text((ROOT / "tests/test_ray_cluster.py").read_text())
    return found


def test_the_documents_commands_on_a_head_of_the_local_provider(machine: SshMachine, tmp_path: Path) -> None:
    ray, own = commands(), "python -m marin.run.cluster"
    parts = {
        "up": ray["up"],
        "exec": f"timeout 8 {ray['exec']}",
        "attach": f"echo 'echo attached to $HOME' | {ray['attach']}",
        "dashboard": f"({ray['dashboard']} & echo $! > tunnel) > said 2>&1; "
        "timeout 60 bash -c 'until : < /dev/tcp/127.0.0.1/8265; do sleep 0.2; done' 2> refused",
        "submit": f"{ray['job submit']} | tee submitted; id=$(grep -om1 'raysubmit_[A-Za-z0-9]*' submitted)",
        "logs": f"for _ in $(seq 30); do {_of_job(ray['job logs'])} | grep 'tasks are well' && break; done",
        "status": _of_job(ray["job status"]),
        "stop": _of_job(ray["job stop"]),
        "own exec": f"export RAY_ADDRESS=http://127.0.0.1:8265; {own} exec marin-cluster -- 'ray status; exit 9'",
        "ray_run": f"(cd {ROOT} && MARIN_PREFIX=$HOME/out {RAY_RUN})",
        "own submit": f"{own} submit marin-cluster -- python tests/test_ray_cluster.py",
        "own monitor": f"timeout 8 {own} monitor",
        "own dashboard": f"{own} dashboard",
        "down": ray["down"],
        "own status": f"{own} status",
    }
    lines = [f"echo '=== {name}'; {line}; echo \"=== $?\"" for name, line in parts.items()]
    script = "\n".join([f"{SET_UP} || exit 1", "exec 2>&1 < /dev/null", *lines])
    done = subprocess.run(
        [*APART, "bash", "-c", script], cwd=tmp_path / "project", env=machine.environment, capture_output=True,
        text=True, timeout=380, check=True,
    )  # fmt: skip
    found = re.findall(r"^=== (\D[^\n]*)\n(.*?)=== (\d+)$", done.stdout, re.DOTALL | re.MULTILINE)
    said = {name: text for name, text, _ in found}
    codes = {name: int(code) for name, _, code in found}
    failing = {"exec": 124, "own exec": 9, "own monitor": 124, "own dashboard": 5, "own status": 5}
    assert codes == {**dict.fromkeys(parts, 0), **failing}, done.stdout
    for name, words in {
        "up": "Ray runtime started.",
        "exec": "Starting autoscaler",
        "attach": f"attached to {machine.head}",
        "logs": "4 of 4 tasks are well",
        "status": "succeeded",
        "own exec": "Resources",
        "ray_run": '{"sum": 4950, "min": 0, "max": 99}',
        "own submit": "4 of 4 tasks are well",
        "own monitor": "Starting autoscaler",
        "own dashboard": "another tunnel is open, or the cluster's head is this machine",
        "down": "No nodes remaining.",
        "own status": f"RuntimeError: Head node of cluster ({machine.name}) not found!",
    }.items():
        assert words in said[name], said[name]
    assert "Traceback" not in "".join(said.values()), done.stdout


def _of_job(line: str) -> str:
    return re.sub(r"raysubmit_\w+", '"$id"', line)
