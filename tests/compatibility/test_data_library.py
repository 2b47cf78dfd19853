"""A data library that was written for older releases works here: `data_library/`, beside this file, stands in for it.

Its pipelines give the same on every backend as plain loops do.
"""

import os
import signal
import traceback
from collections import Counter
from pathlib import Path

import pytest

from fray import Entrypoint, JobRequest, JobStatus, LocalClient, ResourceConfig, create_environment
from fray.testing import LONG, eventually
from fray.testing.signals import is_running
from rigging.filesystem import filesystem

FRAY_BACKENDS = [
    "local",
    "local-process",
    pytest.param("iris", marks=[pytest.mark.process, pytest.mark.timeout(300)]),
    pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.soak, pytest.mark.timeout(300)]),
]
SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="256m", disk="64m")


@pytest.fixture
def library(data_library, prefix, monkeypatch):
    """The library, in a program that is started in the user's folder."""
    monkeypatch.chdir(Path(data_library.__file__).parents[1])
    return data_library


@pytest.fixture
def examples(library):
    from data_library import examples

    return examples


def executor(library, **options):
    return library.Executor(**{"workers": 2, "resources": SMALL, "heartbeat_seconds": 0.2, **options})


def files_in(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def is_swept(prefix):
    """Whether nothing is left in the temporary bucket."""
    return not list(Path(prefix, "tmp", "data-library").iterdir())


def test_words_are_counted(fray_client, library, examples, prefix, tmp_path):
    source = examples.write_texts(tmp_path / "texts", 12)
    progress = []
    run = executor(library, ready=2, on_progress=progress.append)
    outcome = run.execute(examples.count_words(source, tmp_path / "out"))
    assert examples.counts_in(tmp_path / "out") == examples.counted_plainly(source)
    assert outcome.counters == {"lines": 12 * 20}
    assert [(last.done, last.total) for last in progress][-1] == (5, 5)
    assert progress[-1].lost == 0
    assert is_swept(prefix)
    # The files are those of any other backend.
    assert len(outcome.records) == 5
    with LocalClient() as local:
        executor(library, client=local).execute(examples.count_words(source, tmp_path / "again"))
    assert files_in(tmp_path / "out") == files_in(tmp_path / "again")


def test_documents_are_deduplicated_and_summed(fray_client, library, examples, tmp_path, monkeypatch):
    # The library is not in this folder, so it goes along with what it sends.
    monkeypatch.chdir(tmp_path)
    source = examples.write_texts(tmp_path / "texts", 6)
    expected = examples.left_plainly(source)
    left = examples.documents_left(source)
    assert dict(executor(library).execute(left).records) == expected
    total = left.map(lambda pair: pair[1]).reduce(sum, sum)
    assert executor(library).execute(total).records == [sum(expected.values())]


def test_nothing_and_empty_files(fray_client, library, examples, tmp_path):
    (tmp_path / "texts").mkdir()
    pipeline = examples.count_words(tmp_path / "texts", tmp_path / "out")
    assert executor(library).execute(pipeline).records == []
    (tmp_path / "texts" / "text-000.txt").write_text("")
    assert len(executor(library).execute(examples.count_words(tmp_path / "texts", tmp_path / "out")).records) == 5
    assert examples.counts_in(tmp_path / "out") == {}


def test_one_key_has_nearly_all_records(fray_client, library, tmp_path):
    keys = [0 if number % 50 else number for number in range(5000)]
    counted = library.Dataset.from_list(keys, shards=4).group_by(
        lambda key: key, lambda key, records: (key, sum(1 for _ in records)), num_output_shards=3
    )
    assert dict(executor(library).execute(counted).records) == Counter(keys)


def test_a_users_error_ends_the_run_and_comes_with_its_traceback(fray_client, library, tmp_path):
    class BadDocument(Exception):
        pass

    seen = tmp_path / "seen"
    seen.mkdir()

    def parse_the_document(number):
        (seen / str(number)).touch()
        raise BadDocument(f"document {number} has no text")

    pipeline = library.Dataset.from_list(range(20), shards=20).map(parse_the_document)
    with pytest.raises(BadDocument, match="document 0 has no text") as caught:
        executor(library, workers=1).execute(pipeline)
    told = "".join(traceback.format_exception(caught.value))
    assert "stage 0, shard 0 of 20: in the user's function" in told
    assert "parse_the_document" in told
    assert [path.name for path in seen.iterdir()] == ["0"], "the run stops at the first"


def test_a_task_whose_storage_fails_is_tried_again(fray_client, library, tmp_path):
    failed = tmp_path / "failed"

    def read(number):
        if number == 3 and not failed.exists():
            failed.touch()
            raise OSError("connection reset")
        library.increment("read")
        return number

    pipeline = library.Dataset.from_list(range(6), shards=3).map(read)
    outcome = executor(library).execute(pipeline)
    assert sorted(outcome.records) == list(range(6))
    assert outcome.counters == {"read": 6}, "what the failed attempt counted is not in it"

    def never(number):
        raise OSError(f"connection {number} reset")

    with pytest.raises(library.PipelineFailed, match=r"(?s)stage 0, shard 0 of 1 failed 3 times.*connection 7 reset"):
        executor(library).execute(library.Dataset.from_list([7]).map(never))


def test_a_worker_that_is_killed_costs_nothing_but_time(fray_client, library, examples, tmp_path):
    if not fray_client.capabilities.actor_restarts:
        pytest.skip("its actors are threads of this process")
    source, killed = examples.write_texts(tmp_path / "texts", 8), tmp_path / "killed"
    progress = []

    def die_once(line):
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return line

    pipeline = examples.count_words(source, tmp_path / "out", look=die_once)
    outcome = executor(library, on_progress=progress.append).execute(pipeline)
    assert killed.exists()
    assert examples.counts_in(tmp_path / "out") == examples.counted_plainly(source)
    assert outcome.counters == {"lines": 8 * 20}
    assert progress[-1].lost >= 1


@pytest.mark.soak
def test_a_worker_that_falls_silent_is_taken_for_lost(fray_client, library, tmp_path):
    if not fray_client.capabilities.actor_restarts:
        pytest.skip("its actors are threads of this process")
    stopped = tmp_path / "stopped"

    def stop_once(number):
        try:
            with stopped.open("x") as file:  # one of the two
                file.write(str(os.getpid()))
        except FileExistsError:
            return number
        os.kill(os.getpid(), signal.SIGSTOP)
        return number

    progress = []
    run = executor(library, ready=2, heartbeat_timeout=5, on_progress=progress.append)
    outcome = run.execute(library.Dataset.from_list(range(10), shards=5).map(stop_once))
    assert sorted(outcome.records) == list(range(10))
    assert progress[-1].lost >= 1
    # Shut down with its group, although it cannot listen.
    eventually(lambda: not is_running(int(stopped.read_text())), "the silent worker's process has ended", LONG)


def test_a_run_whose_workers_all_die_fails(fray_client, library):
    if not fray_client.capabilities.actor_restarts:
        pytest.skip("its actors are threads of this process")
    pipeline = library.Dataset.from_list(range(4), shards=4).map(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(library.PipelineFailed, match="all 2 workers have ended"):
        executor(library, max_restarts=0, ready=2).execute(pipeline)


def test_the_program_is_a_job(fray_client, library, examples, prefix, tmp_path):
    source = examples.write_texts(tmp_path / "texts", 4)
    request = JobRequest(
        name="count-words",
        entrypoint=Entrypoint.from_callable(
            examples.main, [str(source), str(tmp_path / "out")], {"workers": 2, "resources": SMALL, "name": "inner"}
        ),
        resources=SMALL,
        environment=create_environment(env_vars={"MARIN_PREFIX": prefix}),
    )
    job = fray_client.submit(request)
    assert job.wait(timeout=280) == JobStatus.SUCCEEDED
    assert examples.counts_in(tmp_path / "out") == examples.counted_plainly(source)
    if fray_client.capabilities.callable_logs:
        assert "wrote 5 files of 80 lines" in job.logs()
    assert is_swept(prefix)


def test_parts_lie_in_the_temporary_bucket_of_the_region(library, examples, tmp_path, gcs_server, monkeypatch):
    gcs_server.create_bucket("marin-us-east5", "us-east5")
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-east5")
    # A listing that is kept while others write hides what they write from all of this process.
    storage = filesystem("gs", use_listings_cache=False)
    source, seen = examples.write_texts(tmp_path / "texts", 3), set()

    def look(progress):
        seen.update(path.partition("data-library/")[0] for path in storage.find("marin-us-east5/tmp"))

    with LocalClient() as local:
        run = executor(library, client=local, on_progress=look)
        outcome = run.execute(examples.count_words(source, "gs://marin-us-east5/words"))
        assert dict(run.execute(examples.documents_left(source)).records) == examples.left_plainly(source)
    assert seen == {"marin-us-east5/tmp/ttl=1d/"}
    for path in outcome.records:
        storage.get(path, str(tmp_path / os.path.basename(path)))
    assert examples.counts_in(tmp_path) == examples.counted_plainly(source)
    assert storage.find("marin-us-east5/tmp") == [], "what was temporary is gone"


def run_two_hundred(library, examples, tmp_path, **options):
    source = examples.write_texts(tmp_path / "texts", 200)
    executor(library, **options).execute(examples.count_words(source, tmp_path / "out"))
    assert examples.counts_in(tmp_path / "out") == examples.counted_plainly(source)
    left = executor(library, **options).execute(examples.documents_left(source))
    assert dict(left.records) == examples.left_plainly(source)


def test_two_hundred_files_in_threads(library, examples, tmp_path):
    with LocalClient() as local:
        run_two_hundred(library, examples, tmp_path, client=local, workers=4)


@pytest.mark.soak
def test_two_hundred_files(fray_client, library, examples, tmp_path):
    run_two_hundred(library, examples, tmp_path, workers=3, ready=2)
