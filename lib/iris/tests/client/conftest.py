"""A cluster that takes submissions and blobs in this process."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from iris.client import IrisClient
from iris.client.submission.bundle import blob_digest
from iris.rpc.generated import iris_pb2 as pb


class Cluster:
    """A fake of the connection and the calls of clients. `answers` replace the answers to the first submissions."""

    lends = False

    def __init__(self) -> None:
        self.requests: list[list[pb.SubmitJobRequest]] = []
        self.answers: list[list[Any]] = []
        self.blobs: dict[str, bytes] = {}
        self.looked_for: list[list[str]] = []
        self.uploaded: list[pb.UploadBlobsRequest] = []

    def submit(self, requests: Sequence[pb.SubmitJobRequest]) -> list[Any]:
        self.requests.append(list(requests))
        if self.answers:
            return self.answers.pop(0)
        return [pb.SubmitJobResponse(job_id=request.spec.job_id) for request in requests]

    def missing_blobs(self, digests: Sequence[str]) -> list[str]:
        self.looked_for.append(list(digests))
        return [digest for digest in digests if digest not in self.blobs]

    def upload_blobs(self, messages: Callable[[], Iterator[pb.UploadBlobsRequest]]) -> None:
        partial: dict[str, bytes] = {}
        for message in messages():
            self.uploaded.append(message)
            for chunk in message.chunks:
                assert chunk.offset == len(partial.get(chunk.digest, b""))
                partial[chunk.digest] = partial.get(chunk.digest, b"") + chunk.data
                if chunk.last:
                    self.blobs[chunk.digest] = partial.pop(chunk.digest)
                    assert blob_digest(self.blobs[chunk.digest]) == chunk.digest
        assert not partial

    @property
    def spec(self) -> pb.JobSpec:
        """The last submitted job."""
        return self.requests[-1][-1].spec

    def client(self, *workspace: Any, **options: Any) -> IrisClient:
        played: Any = self
        return IrisClient(played, *workspace, calls=played, **{"user": "ann", **options})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()
