"""Jobs that run `iris job run` themselves: every line is shown once, and output that is captured is captured."""

import shlex
import sys

RUN = [sys.executable, "-m", "iris.cli.main", "job", "run", "--no-workspace", "--memory", "64MB", "--"]


def nested(command: list[str], depth: int) -> list[str]:
    for _ in range(depth):
        command = [*RUN, *command]
    return command


def test_a_line_of_a_grandchild_is_shown_once(cluster, workspace):
    leaf = ["sh", "-c", "echo said; echo complained >&2"]
    done = cluster.iris("job", "run", "--no-workspace", "--", *nested(leaf, 2), cwd=workspace)
    assert done.code == 0, done.text
    assert (done.out.count("said"), done.err.count("complained")) == (1, 1), done.text
    assert done.out.startswith("["), "under the name of the job that wrote it"


def test_what_a_job_captures_of_its_child_is_there(cluster, workspace):
    script = f"caught=$({shlex.join([*RUN, 'echo', 'a word'])} 2>/dev/null); echo caught $caught"
    done = cluster.iris("job", "run", "--no-workspace", "--", "sh", "-c", script, cwd=workspace)
    assert done.code == 0, done.text
    assert "caught a word\n" in done.out
