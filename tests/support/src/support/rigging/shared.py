"""One server of each protocol per process, because clients cache the first endpoint.

botocore and s3fs cache one endpoint per process, so they would never use a second S3 server.
"""

import atexit
import functools
import os
from typing import TypeVar

from support.rigging.gcs_server import GcsServer
from support.rigging.s3_server import S3Server
from support.rigging.serving import TestServer

Server = TypeVar("Server", bound=TestServer)


@functools.cache
def shared_gcs_server() -> GcsServer:
    """Return the GCS server of this process, started by the first call and stopped at the end. Callers create
    buckets."""
    return _until_the_end(GcsServer())


@functools.cache
def shared_s3_server() -> S3Server:
    return _until_the_end(S3Server())


def _until_the_end(server: Server) -> Server:
    started = server.__enter__()
    owner = os.getpid()

    def stop() -> None:
        # A fork that ends in order must leave it to its parent.
        if os.getpid() == owner:
            server.__exit__(None, None, None)

    atexit.register(stop)
    return started
