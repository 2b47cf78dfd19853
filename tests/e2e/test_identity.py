"""Whose is what, through the command line: two users of one cluster, and tasks that look around on their host."""

import json
from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster, Result

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


def test_a_second_user_of_a_cluster_acts_for_nobody_else(own_cluster: Cluster, workspace: Path, tmp_path: Path) -> None:
    run = ("job", "run", "--no-workspace")
    alive = own_cluster.iris(*run, "--no-wait", "--job-name", "long", "--", "sleep", "600", cwd=workspace)
    assert alive.code == 0, alive.text
    long = alive.out.strip()
    owner = long.split("/")[1]
    address = json.loads((own_cluster.state_dir / "cluster.json").read_text())["address"]
    token = tmp_path / "bob.token"
    made = own_cluster.iris("user", "token", "create", "bob", "--output", str(token))
    assert made.code == 0, made.text
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text().strip() not in made.text

    def bob(*arguments: str) -> Result:
        env = {"IRIS_TOKEN_FILE": str(token), "IRIS_STATE_DIR": str(tmp_path / "none")}
        return own_cluster.iris("--controller-url", address, *arguments, cwd=workspace, env=env)

    done = bob(*run, "--job-name", "mine", "--", "sh", "-c", "echo hello of $IRIS_JOB_ID")
    assert (done.code, done.out) == (0, "hello of /bob/mine\n"), done.text
    for words, reason in (
        (f"job stop {long}", f"of {long}: only user {owner} and admins may"),
        (f"job logs {long}", f"of {long}: only user {owner} and admins may"),
        (f"job run --no-workspace --user {owner} -- true", "user bob may not submit jobs of"),
        ("cluster stop --force", "user bob may not stop the cluster: only an admin"),
    ):
        refused = bob(*words.split())
        assert (refused.code, reason in refused.err) == (3, True), (words, refused.text)
    listed = {job["job_id"]: job for job in json.loads(bob("job", "list", "--json").out)}
    assert (listed[long]["state"], "sleep" in str(listed[long])) == ("running", False)
    asked = bob("query", "SELECT job_id, command FROM jobs ORDER BY job_id", "-f", "json")
    assert [row["command"] is None for row in json.loads(asked.out)] == [False, True]
    # The owner of the state directory may do all that.
    assert own_cluster.iris(*run, "--user", "bob", "--", "true", cwd=workspace).code == 0
    assert own_cluster.iris("job", "stop", long).code == 0
