"""Commands of the README and of pages on jobs, run as they are written, on a local cluster of their own."""

import http.cookiejar
import re
import shlex
import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from support.iris.embedded_cluster import Cluster, Result, running_cluster
from support.marin.programs import run_program
from tests.docs.blocks import REPOSITORY, FencedBlock, blocks_of
from tests.docs.command_lines import command_lines

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("docs")) as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the experiments, from which jobs take what the tests' environment has."""
    place = tmp_path_factory.mktemp("folder")
    shutil.copytree(REPOSITORY / "experiments", place / "experiments")
    (place / "train.py").write_text("print('trained')\n")
    return place


def block(page: str, begins: str) -> FencedBlock:
    (found,) = [block for block in blocks_of(page) if block.first_line.startswith(begins)]
    return found


def run_line(cluster: Cluster, line: str, cwd: Path) -> Result:
    words = shlex.split(line.removeprefix("uv run "))
    assert words[0] == "iris", line
    return cluster.iris(*words[1:], cwd=cwd)


def test_the_experiment_of_the_readme(cluster: Cluster, tmp_path: Path) -> None:
    (code,) = [block.text for block in blocks_of("README.md") if block.language == "python"]
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "words.py").write_text(code)
    run_program([sys.executable, "experiments/words.py"], tmp_path, cluster.environment())
    (count,) = (cluster.storage / "tutorial").glob("words-*/count.txt")
    assert count.read_text() == "6"
    as_a_job = cluster.iris("job", "run", "--", "python", "-m", "experiments.words", cwd=tmp_path)
    assert as_a_job.code == 0, as_a_job.text
    assert "already done" in as_a_job.out


def test_the_dashboard(cluster: Cluster, folder: Path) -> None:
    """The page's commands, and a browser that opens the links: only one of them may change anything."""
    job = cluster.iris("job", "run", "--no-wait", "--", "sleep", "600", cwd=folder).out.strip()
    lines = command_lines(block("docs/dashboard.md", "uv run iris cluster dashboard").text)
    links = [run_line(cluster, line, folder) for line in lines]
    assert [link.code for link in links] == [0, 0, 0], links[0].text
    reading, changing, printed = [link.out.strip() for link in links]
    base = reading.partition("/login?")[0]
    assert printed.startswith(f"{base}/login?token=")

    def new_browser() -> urllib.request.OpenerDirector:
        # A proxy of this machine's user has nothing to do with it.
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    for link, may_stop in ((reading, False), (changing, True)):
        browser, shown = new_browser(), []
        for url in (link, f"{base}/jobs", f"{base}/job?id={urllib.parse.quote(job)}"):
            with browser.open(url, timeout=30) as answer:
                shown.append(answer.read().decode())
        assert "Signed in" in shown[0]
        assert job in shown[1]
        assert ("Stop job" in shown[2]) is may_stop
    with pytest.raises(urllib.error.HTTPError, match="403"):
        new_browser().open(reading, timeout=30)  # it was good once
    assert cluster.iris("job", "stop", job).code == 0


def test_the_commands_of_the_readme(cluster: Cluster, folder: Path) -> None:
    begin, *lines = command_lines(block("README.md", "uv run iris job run --cpu").text)
    first = run_line(cluster, begin.replace("--memory 8GB", "--memory 500MB"), folder)
    assert first.code == 0, first.text
    job = re.search(r"job (/\S+) succeeded", first.err)
    assert job is not None, first.text
    for line in lines:
        result = run_line(cluster, line.replace("JOB", job[1]), folder)
        already_over = " stop " in line
        assert result.code == 0 or already_over, result.text
        assert job[1] in result.text or " logs " in line or " status" in line, result.text


def test_the_commands_of_the_iris_readme(cluster: Cluster, folder: Path) -> None:
    for line in command_lines(block("lib/iris/README.md", "uv run iris job run --cpu").text):
        result = run_line(cluster, line, folder)
        assert result.code == 0, result.text


def test_the_marin_commands_of_the_readme(cluster: Cluster, folder: Path) -> None:
    first = cluster.iris("job", "run", "--", "python", "-m", "experiments.hello_world", cwd=folder)
    assert first.code == 0, first.text
    lines = list(command_lines(block("README.md", "uv run marin runs").text))
    assert [line.split()[3] for line in lines] == ["runs", "show", "logs", "diff", "gc"]
    told = [""]
    for line in lines:
        run_id = re.search(r"hello_world-[0-9a-f]{6}", told[0])
        command = line.removeprefix("uv run ").replace("RUN", run_id[0] if run_id else "")
        told.append(run_program(command, folder, cluster.environment()).stdout)
        told[0] = told[1]
    assert "hello_world" in told[1]
    assert "hello_world/data" in told[2]


def test_the_queries(cluster: Cluster, folder: Path) -> None:
    lines = block("docs/query.md", "iris query").text.splitlines()
    assert len(lines) >= 4
    cluster.iris("job", "run", "--no-workspace", "--", "false", cwd=folder)
    (folder / "report.sql").write_text("SELECT count(*) AS jobs FROM jobs")
    for line in lines:
        run_program(line, folder, cluster.environment())


@pytest.mark.soak
def test_limits_and_usage(cluster: Cluster, folder: Path) -> None:
    runs, looks = (text for text in blocks_of("docs/worker.md") if text.language == "bash")
    ended = ""
    for line in command_lines(runs.text):
        result = run_line(cluster, line.replace("--memory 2GB --disk 10GB", "--memory 200MB --disk 100MB"), folder)
        assert result.code == 0, result.text
        assert "trained" in result.out
        found = re.search(r"job (/\S+) succeeded", result.err)
        assert found is not None
        ended = found[1]

    def has_usage() -> bool:
        return "cpu" in cluster.iris("job", "summary", ended, cwd=folder).out

    eventually(has_usage, "the summary tells what the job used")
    for line in command_lines(looks.text):
        result = run_line(cluster, line.replace("JOB", ended).replace("[", "").replace("]", ""), folder)
        assert result.code == 0, result.text
