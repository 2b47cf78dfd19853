import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iris.worker.host.environment import host_environment, is_kept
from iris.worker.prepare.task_env import base_variables

KEPT = {
    "PATH": "/bin", "HOME": "/h", "USER": "ann", "LANG": "C", "LC_ALL": "C", "TZ": "UTC", "TMPDIR": "/t",
    "XDG_STATE_HOME": "/s", "https_proxy": "p", "NO_PROXY": "n", "SSL_CERT_FILE": "/c", "REQUESTS_CA_BUNDLE": "/c",
    "UV_CACHE_DIR": "/u", "UV_INDEX_URL": "i", "PIP_INDEX_URL": "i?a=b", "IRIS_STATE_DIR": "/i", "PYTHONPATH": "/p",
    "GRPC_VERBOSITY": "ERROR", "CUDA_VISIBLE_DEVICES": "0", "TPU_NAME": "t", "GCE_METADATA_HOST": "g",
}  # fmt: skip
STORAGE = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "GOOGLE_APPLICATION_CREDENTIALS": "/g"}
DROPPED = {
    "HF_TOKEN": "h", "WANDB_API_KEY": "w", "GITHUB_TOKEN": "g", "OPENAI_API_KEY": "o", "DATABASE_URL": "d",
    "UV_PUBLISH_TOKEN": "t", "UV_INDEX_OURS_PASSWORD": "p", "PIP_PASSWORD": "p", "IRIS_TOKEN_FILE": "f",
    "XDG_SECRET": "x", "SSH_AUTH_SOCK": "s", "MARIN_PREFIX": "m", "FOO": "bar",
}  # fmt: skip


def test_settings_of_the_host_are_kept_and_nothing_else() -> None:
    everything = {**KEPT, **STORAGE, **DROPPED}
    assert host_environment(everything) == KEPT
    assert host_environment(everything, storage=True) == {**KEPT, **STORAGE}


def test_tasks_get_less_than_their_worker_keeps() -> None:
    passed = base_variables({**KEPT, **STORAGE, **DROPPED})
    assert passed.items() <= KEPT.items()
    assert {"IRIS_STATE_DIR", "PYTHONPATH", "XDG_STATE_HOME"}.isdisjoint(passed)


PROGRAM = """
import json, os, subprocess, sys
from iris.worker.host.environment import hide_own_environment
hide_own_environment(storage=sys.argv[1] == "storage")
shown = open("/proc/self/environ").read()
child = subprocess.run(["env"], capture_output=True, text=True).stdout
print(json.dumps({"shown": shown, "own": dict(os.environ), "child": child}))
"""


@pytest.mark.parametrize("mode", ["plain", "storage"])
def test_a_process_hides_what_it_was_started_with(mode: str) -> None:
    given = {**KEPT, "PATH": os.environ["PATH"], **STORAGE, **DROPPED, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], env=given, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    names = {entry.partition("=")[0] for entry in seen["shown"].split("\0") if entry}
    assert names >= {"PATH", "UV_CACHE_DIR", "https_proxy", "PIP_INDEX_URL"}
    assert not [name for name in names if not is_kept(name)]
    for secret in ("HF_TOKEN", "UV_PUBLISH_TOKEN", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK"):
        assert secret not in seen["shown"]
    kept = {**STORAGE} if mode == "storage" else {}
    assert {name: seen["own"].get(name) for name in kept} == kept
    assert not DROPPED.keys() & seen["own"].keys()
    assert ("AWS_SECRET_ACCESS_KEY=s" in seen["child"]) == bool(kept)
    assert f"PATH={given['PATH']}" in seen["child"]


def test_the_manual_lists_what_is_kept() -> None:
    from iris.worker.host import environment as module

    manual = (Path(__file__).parents[5] / "docs" / "reference" / "iris-clusters.md").read_text()
    section = manual.partition("## What tasks see of their host")[2].partition("\n## ")[0]
    names = {*module.KEPT, *module.PROXIES}
    prefixes = {f"{prefix}*" for prefix in (*module.KEPT_PREFIXES, *module.STORAGE_PREFIXES)}
    missing = [name for name in sorted(names | prefixes) if f"`{name}`" not in section]
    assert not missing, f"docs/reference/iris-clusters.md, 'What tasks see of their host', does not name {missing}"
