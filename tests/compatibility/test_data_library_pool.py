"""The same data library runs its tasks in a pool of workers on Iris (`iris.client.worker_pool`)."""

import os
import signal
from pathlib import Path

import pytest

from iris.client import IrisClient
from iris.client.worker_pool import WorkerPoolConfig
from iris.cluster.types import Entrypoint, EnvironmentSpec, ResourceSpec

FRAY_BACKENDS = [pytest.param("iris", marks=[pytest.mark.process, pytest.mark.timeout(300)])]


@pytest.fixture
def client(fray_harness, data_library):
    """A client whose jobs have the user's folder, and the library in it."""
    folder = Path(data_library.__file__).parents[1]
    with IrisClient.remote(fray_harness.spec.removeprefix("iris://"), workspace=folder) as made:
        yield made


def pool(data_library, client, **options):
    resources = ResourceSpec(cpu=0.1, memory="256MB", disk="64MB")
    config = WorkerPoolConfig(**{"num_workers": 2, "resources": resources, "name_prefix": "counting", **options})
    return data_library.PoolExecutor(client, config)


def no_job_is_left(client):
    return [job.job_id for job in client.list_jobs() if "counting" in job.job_id and not job.state.is_terminal] == []


def test_words_are_counted(client, data_library, prefix, tmp_path):
    from data_library import examples

    source = examples.write_texts(tmp_path / "texts", 12)
    outcome = pool(data_library, client).execute(examples.count_words(source, tmp_path / "out"))
    assert examples.counts_in(tmp_path / "out") == examples.counted_plainly(source)
    assert outcome.counters == {"lines": 12 * 20}
    assert dict(pool(data_library, client).execute(examples.documents_left(source)).records) == examples.left_plainly(
        source
    )
    assert no_job_is_left(client)


def test_a_users_error_ends_the_run(client, data_library, prefix):
    def parse(number):
        raise ValueError(f"document {number} has no text")

    with pytest.raises(ValueError, match="has no text") as caught:
        pool(data_library, client).execute(data_library.Dataset.from_list(range(8), shards=8).map(parse))
    assert any("in parse" in note for note in caught.value.__notes__)
    assert no_job_is_left(client)


@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_worker_that_is_killed_costs_nothing_but_time(client, data_library, prefix, tmp_path, max_retries):
    killed = tmp_path / "killed"

    def double(number):
        if number == 5 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * number

    pipeline = data_library.Dataset.from_list(range(8), shards=4).map(double)
    outcome = pool(data_library, client, max_retries=max_retries).execute(pipeline)
    assert killed.exists()
    assert sorted(outcome.records) == [2 * number for number in range(8)]


def test_a_pool_whose_workers_die_does_not_hang(client, data_library, prefix):
    pipeline = data_library.Dataset.from_list(range(4), shards=4).map(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(data_library.PipelineFailed, match="failed 3 times"):
        pool(data_library, client).execute(pipeline)
    assert no_job_is_left(client)


def test_the_program_is_a_job(client, data_library, prefix, tmp_path):
    from data_library import examples

    source = examples.write_texts(tmp_path / "texts", 4)

    def program(source, output):
        from data_library import PoolExecutor, examples

        from iris.client import iris_ctx

        resources = ResourceSpec(cpu=0.1, memory="256MB", disk="64MB")
        config = WorkerPoolConfig(num_workers=2, resources=resources, name_prefix="counting-inside")
        outcome = PoolExecutor(iris_ctx().client, config).execute(examples.count_words(source, output))
        print(f"wrote {len(outcome.records)} files")

    job = client.submit(
        Entrypoint.from_callable(program, str(source), str(tmp_path / "out")),
        "count-words",
        ResourceSpec(cpu=0.1, memory="256MB", disk="64MB"),
        EnvironmentSpec(env_vars={"MARIN_PREFIX": prefix}),
    )
    job.wait(timeout=280)
    assert any("wrote 5 files" in line.data for line in client.fetch_task_logs(job.job_id))
    assert examples.counts_in(tmp_path / "out") == examples.counted_plainly(source)
    assert no_job_is_left(client)


@pytest.mark.soak
def test_two_hundred_files(client, data_library, prefix, tmp_path):
    from data_library import examples

    source = examples.write_texts(tmp_path / "texts", 200)
    pool(data_library, client, num_workers=3).execute(examples.count_words(source, tmp_path / "out"))
    assert examples.counts_in(tmp_path / "out") == examples.counted_plainly(source)
