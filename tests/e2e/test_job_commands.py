"""Jobs that run jobs themselves through the command line."""

import shlex
import sys
from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster

pytestmark = pytest.mark.process

NESTED = [sys.executable, "-m", "iris.cli.main", "job", "run", "--no-workspace", "--memory", "64MB", "--"]


def test_a_line_of_a_grandchild_is_shown_once_and_can_be_captured(cluster: Cluster, workspace: Path) -> None:
    leaf = [*NESTED, *NESTED, "sh", "-c", "echo said; echo complained >&2"]
    done = cluster.iris("job", "run", "--no-workspace", "--", *leaf, cwd=workspace)
    assert done.code == 0, done.text
    assert (done.out.count("said"), done.err.count("complained")) == (1, 1), done.text
    assert done.out.startswith("["), "under the name of the job that wrote it"
    script = f"caught=$({shlex.join([*NESTED, 'echo', 'a word'])} 2>/dev/null); echo caught $caught"
    done = cluster.iris("job", "run", "--no-workspace", "--", "sh", "-c", script, cwd=workspace)
    assert done.code == 0, done.text
    assert "caught a word\n" in done.out
