"""What callables returned: kept with their attempts, and given to their user alone."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from iris.controller.logs.store import LogStore
from iris.rpc import iris_pb2 as pb
from iris.testing.controller import RunningController
from iris.testing.worker import ScriptedWorker

SUCCEEDED, FAILED = pb.TASK_STATE_SUCCEEDED, pb.TASK_STATE_FAILED
SMALL = b"3.12\nsmall"
CHUNK = 1 << 20


def send_blob(user: Any, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    starts = range(0, len(data), CHUNK)
    chunks = [
        pb.BlobChunk(digest=digest, offset=at, data=data[at : at + CHUNK], last=at + CHUNK >= len(data))
        for at in starts
    ]
    user.blobs.UploadBlobs(pb.UploadBlobsRequest(chunks=[chunk]) for chunk in chunks)
    return digest


def submit(user: Any, name: str, **fields: Any) -> None:
    call = pb.Callable(payload_digest=send_blob(user, b"a pickled call"))
    user.submit(name, entrypoint=pb.Entrypoint(callable=call), **fields)


def end(user: Any, worker: ScriptedWorker, name: str, **fields: Any) -> None:
    submit(user, name)
    worker.wait_for_start(f"{name}/0:0")
    worker.observe(f"{name}/0:0", SUCCEEDED, **{"tells_result": True, **fields})
    user.wait_one(name)


def result_of(caller: Any, name: str, submitted_at_ms: int, task_index: int = 0) -> bytes:
    data = b""
    while True:
        request = pb.GetResultRequest(
            job_id=name, submitted_at_ms=submitted_at_ms, task_index=task_index, offset=len(data)
        )
        reply = caller.jobs.GetResult(request)
        assert len(reply.data) <= CHUNK
        data += reply.data
        if len(data) >= reply.size:
            return data


def own_result(user: Any, name: str) -> bytes:
    return result_of(user, name, user.get(name).submitted_at_ms)


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details() or ""


def test_small_large_and_none(user: Any, worker: ScriptedWorker) -> None:
    large = b"3.12\n" + os.urandom(3 * CHUNK)
    end(user, worker, "/ann/small", result=SMALL)
    end(user, worker, "/ann/large", result_digest=send_blob(user, large))
    end(user, worker, "/ann/none")
    assert own_result(user, "/ann/small") == SMALL
    assert own_result(user, "/ann/large") == large
    assert own_result(user, "/ann/none") == b""
    assert user.logs("/ann/small") == []


def test_it_is_for_its_user_and_for_the_job_that_is_meant(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    end(user, worker, "/ann/a", result=SMALL)
    at = user.get("/ann/a").submitted_at_ms
    assert refused(lambda: result_of(admin, "/ann/a", at))[0] is grpc.StatusCode.PERMISSION_DENIED
    code, text = refused(lambda: result_of(user, "/ann/a", 17))
    assert (code, "another one has its name" in text) == (grpc.StatusCode.NOT_FOUND, True)
    code, text = refused(lambda: result_of(user, "/ann/a", at, 1))
    assert (code, "has tasks 0 to 0, not 1" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_what_has_none_says_so(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/program", argv=("train", "--fast"))
    at = user.get("/ann/program").submitted_at_ms
    code, text = refused(lambda: result_of(user, "/ann/program", at))
    assert (code, "the program 'train', which returns no value" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    submit(user, "/ann/fails")
    worker.wait_for_start("/ann/fails/0:0")
    assert "it is" in refused(lambda: own_result(user, "/ann/fails"))[1]
    worker.observe("/ann/fails/0:0", FAILED, exit_code=1, result=SMALL)
    user.wait_one("/ann/fails")
    assert refused(lambda: own_result(user, "/ann/fails")) == (
        grpc.StatusCode.NOT_FOUND,
        "task /ann/fails/0 has no result: it is failed",
    )


def test_a_worker_of_a_former_release_is_not_taken_for_one_whose_callable_returned_none(
    user: Any, worker: ScriptedWorker
) -> None:
    end(user, worker, "/ann/a", tells_result=False)
    assert own_result(user, "/ann/a").startswith(b"! its worker, of a former release")


def test_a_blob_that_has_gone_is_no_none(user: Any, worker: ScriptedWorker) -> None:
    end(user, worker, "/ann/a", result_digest="0" * 64)
    assert own_result(user, "/ann/a").startswith(b"! the controller could not keep it")


def test_a_worker_can_tell_none_of_what_was_given_to_another(
    user: Any, worker: ScriptedWorker, controller: RunningController
) -> None:
    submit(user, "/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    with ScriptedWorker(controller.address, controller.worker_token("w2"), "w2") as other:
        other.observe("/ann/a/0:0", SUCCEEDED, tells_result=True, result=b"3.12\nof a stranger")
        other.beat(1)
        other.wait_for_beat_ack(1)
        worker.observe("/ann/a/0:0", SUCCEEDED, tells_result=True)
        user.wait_one("/ann/a")
    assert own_result(user, "/ann/a") == b""


def test_it_goes_with_its_job_and_stays_without_its_blob(tmp_path: Path) -> None:
    store, blob = LogStore(tmp_path / "logs"), tmp_path / "blob"
    blob.write_bytes(b"3.12\nlarge")
    store.keep_result_file(("/ann/a", 0, 0), blob)
    blob.unlink()
    assert store.read_result(("/ann/a", 0, 0), 5, 2) == (b"la", 10)
    assert store.read_result(("/ann/a", 0, 1), 0, 2) == (b"", 0)
    again = LogStore(tmp_path / "logs")
    assert list(again.stored_jobs()) == ["/ann/a"], "it is found although the task wrote nothing"
    again.remove("/ann/a")
    assert not list((tmp_path / "logs").iterdir())


def test_where_results_were_lost_with_their_disk_none_is_not_told(tmp_path: Path) -> None:
    """A controller that takes over from the remote state knows the jobs, and has none of the files."""
    first = LogStore(tmp_path / "logs")
    first.begin_results(1000)
    again = LogStore(tmp_path / "logs")
    again.begin_results(5000)
    elsewhere = LogStore(tmp_path / "other" / "logs")
    elsewhere.begin_results(5000)
    assert (first.results_since_ms, again.results_since_ms, elsewhere.results_since_ms) == (1000, 1000, 5000)
