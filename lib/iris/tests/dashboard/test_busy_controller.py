"""A controller that is stopped for a while, as a machine does that is short of something: what pages are told."""

import asyncio
from pathlib import Path

import pytest

from iris.dashboard.cluster_client import ClusterClient, viewer_of
from iris.rpc.auth import load_or_create_secret
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import DeadlineExceeded
from support.iris.controller_process import ControllerProcess

pytestmark = pytest.mark.process
ROOT = viewer_of("root", is_admin=True, may_write=False)


def test_a_controller_that_does_not_answer_is_told_as_busy_and_asked_again(tmp_path: Path) -> None:
    process = ControllerProcess(tmp_path)

    async def ask() -> None:
        client = ClusterClient(str(process.address), load_or_create_secret(tmp_path / "secret"), patience_s=0.3)
        client.open()
        process.pause()
        try:
            with pytest.raises(DeadlineExceeded, match=r"did not answer within 0\.3 s: it is busy"):
                await client.status(ROOT)
            with pytest.raises(DeadlineExceeded, match="it is busy"):
                await anext(client.logs(ROOT, pb.FetchLogsRequest(id="/ann/a")))
        finally:
            process.resume()
        patient = ClusterClient(str(process.address), load_or_create_secret(tmp_path / "secret"))
        patient.open()
        assert not (await patient.status(ROOT)).workers
        await patient.close()
        await client.close()

    try:
        asyncio.run(ask())
    finally:
        process.kill()
