"""Storage roots in buckets, on this process's servers of Google's and Amazon's protocols."""

import contextlib
from collections.abc import Iterator

import fsspec
import pytest

from support.rigging.shared import shared_gcs_server, shared_s3_server


@contextlib.contextmanager
def bucket_root(protocol: str, name: str) -> Iterator[str]:
    server = shared_gcs_server() if protocol == "gs" else shared_s3_server()
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in server.environment().items():
            patch.setenv(variable, value)
        fsspec.filesystem(protocol).clear_instance_cache()
        server.create_bucket(name)
        yield f"{protocol}://{name}"
        fsspec.filesystem(protocol).clear_instance_cache()
