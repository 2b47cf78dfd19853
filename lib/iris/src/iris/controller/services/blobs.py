"""BlobService: uploads and downloads blobs in chunks."""

# ruff: noqa: ARG002  # every method takes grpc's context and a request, needed or not

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from iris.controller.storage.blobs import BlobStore, Upload, check_digest
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from iris.rpc.protocol import MAX_BLOB_CHUNK_BYTES
from rigging.errors import InvalidRequest

Context = Any  # grpc's own, which is untyped here


class BlobService(iris_pb2_grpc.BlobServiceServicer):
    """Serves clients, tasks and workers."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def FindMissingBlobs(
        self, request: pb.FindMissingBlobsRequest, context: Context
    ) -> pb.FindMissingBlobsResponse:
        asked = [check_digest(digest) for digest in dict.fromkeys(request.digests)]
        unknown = [digest for digest in asked if not self._blobs.is_verified(digest)]
        # What is damaged counts as missing, so that the client sends it again.
        missing = set(await asyncio.to_thread(self._blobs.unsound, unknown)) if unknown else set()
        return pb.FindMissingBlobsResponse(digests=[digest for digest in asked if digest in missing])

    async def UploadBlobs(
        self, request_iterator: AsyncIterator[pb.UploadBlobsRequest], context: Context
    ) -> pb.UploadBlobsResponse:
        with Upload(self._blobs) as upload:
            async for request in request_iterator:
                for chunk in request.chunks:
                    if len(chunk.data) > MAX_BLOB_CHUNK_BYTES:
                        raise InvalidRequest(
                            f"blob {chunk.digest}: a chunk of {len(chunk.data)} bytes; at most {MAX_BLOB_CHUNK_BYTES}"
                        )
                    upload.add(chunk.digest, chunk.offset, chunk.data, chunk.last)
            if upload.unfinished:
                raise InvalidRequest(f"the upload ended inside blob {upload.unfinished[0]}: its last chunk is missing")
            return pb.UploadBlobsResponse(stored=upload.stored)

    async def FetchBlobs(
        self, request: pb.FetchBlobsRequest, context: Context
    ) -> AsyncGenerator[pb.FetchBlobsResponse, None]:
        chunks: list[pb.BlobChunk] = []
        size = 0
        for digest in map(check_digest, request.digests):
            for offset, data, last in self._blobs.read(digest):
                chunks.append(pb.BlobChunk(digest=digest, offset=offset, data=data, last=last))
                size += len(data)
                # Many small blobs share a message; a large one comes in pieces of a chunk each.
                if size >= MAX_BLOB_CHUNK_BYTES:
                    yield pb.FetchBlobsResponse(chunks=chunks)
                    chunks, size = [], 0
        if chunks:
            yield pb.FetchBlobsResponse(chunks=chunks)
