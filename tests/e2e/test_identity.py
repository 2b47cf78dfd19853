"""What tasks that look around on their host find of others."""

import json
from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster

pytestmark = pytest.mark.process

LOOK = """
import json, os
found, pid = {}, os.getppid()
while pid > 1:
    try:
        found[pid] = open(f"/proc/{pid}/environ").read()
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    except OSError:
        break
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            words = open(f"/proc/{name}/cmdline").read()
            if os.environ["LOOK_FOR"] in words and "job\\0run" not in words:
                found[name] = open(f"/proc/{name}/environ").read()
        except OSError:
            pass
print(json.dumps({"own": dict(os.environ), "others": found}))
"""


def test_a_task_sees_no_secrets_of_the_shell_that_started_its_cluster(own_cluster: Cluster, workspace: Path) -> None:
    (workspace / "look.py").write_text(LOOK)
    secrets = {"AWS_SECRET_ACCESS_KEY": "s3cr3t-a", "GITHUB_TOKEN": "s3cr3t-b", "SOMETHING_ELSE": "s3cr3t-c"}
    assert own_cluster.iris("cluster", "start", "--local", env=secrets).code == 0
    look = ["-e", f"LOOK_FOR={own_cluster.state_dir}", "-e", "GIVEN=by-name", "--", "python", "look.py"]
    done = own_cluster.iris("job", "run", *look, cwd=workspace)
    assert done.code == 0, done.text
    seen = json.loads(done.out)
    assert len(seen["others"]) >= 2  # the worker and the controller at least
    assert "s3cr3t" not in done.out
    assert seen["own"]["GIVEN"] == "by-name"
