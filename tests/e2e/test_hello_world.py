"""The README's first command: an experiment as a job on the local cluster, first and again."""

import json

import pytest

pytestmark = pytest.mark.e2e

RUN = ("job", "run", "--", "python", "-m")


@pytest.mark.timeout(300)
def test_the_experiment_runs_as_a_job_and_the_second_run_finds_it_done(cluster):
    first = cluster.iris(*RUN, "experiments.hello_world", timeout=280, program=True)
    assert first.code == 0, first.text
    stats = json.loads((cluster.storage / "hello_world/stats-b5daf3/stats.json").read_text())
    assert stats == {"sum": 4950, "min": 0, "max": 99}
    assert json.loads((cluster.storage / "hello_world/data-d50b06/numbers.json").read_text()) == list(range(100))
    assert "4950" in first.out
    assert "already done" not in first.text

    second = cluster.iris(*RUN, "experiments.tutorials.hello_world", program=True)
    assert second.code == 0, second.text
    assert second.text.count("already done") >= 2
    assert "4950" in second.out


@pytest.mark.timeout(300)
def test_a_remote_step_runs_as_a_child_job_shown_under_its_parent(cluster, tmp_path):
    cluster_env = {"MARIN_PREFIX": str(tmp_path / "storage")}
    result = cluster.iris(
        "job", "run", "--job-name", "parent", "-e", "MARIN_PREFIX", cluster_env["MARIN_PREFIX"], "--",
        "python", "-m", "experiments.tutorials.hello_world_remote", timeout=280,
    )  # fmt: skip
    assert result.code == 0, result.text
    assert (tmp_path / "storage/hello_world/stats-b5daf3/stats.json").exists()
    summary = json.loads(cluster.iris("job", "summary", "parent", "--json").out)
    assert [child["state"] for child in summary["children"]] == ["succeeded"]
    listing = cluster.iris("job", "list").out.splitlines()
    parent = next(i for i, line in enumerate(listing) if line.split()[0].endswith("/parent"))
    child = listing[parent + 1]
    assert "hello_world" in child
    indent = lambda line: len(line) - len(line.lstrip())  # noqa: E731
    assert indent(child) > indent(listing[parent])
