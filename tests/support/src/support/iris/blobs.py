"""A fake source of blobs."""

import hashlib
from collections.abc import AsyncIterator, Callable

from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import NotFound

Chunk = tuple[str, int, bytes, bool]


class PlayedBlobs:
    """A fake source that sends each blob in two chunks. `broken` changes the data of each call."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.asked: list[list[str]] = []
        self.broken: list[Callable[[list[Chunk]], list[Chunk] | Exception]] = []

    def add(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def add_parts(self, path: str, *parts: bytes, executable: bool = False) -> pb.BundleFile:
        """Store the parts of a bundle's file, and return the file."""
        digests = [self.add(part) for part in parts]
        size = sum(map(len, parts))
        return pb.BundleFile(path=path, size_bytes=size, executable=executable, part_digests=digests)

    def add_bundle(self, *files: pb.BundleFile, directories: tuple[str, ...] = ()) -> str:
        manifest = pb.BundleManifest(format=1, files=files, directories=directories)
        return self.add(manifest.SerializeToString(deterministic=True))

    async def fetch(self, digests: list[str]) -> AsyncIterator[Chunk]:
        self.asked.append(digests)
        chunks: list[Chunk] = []
        for digest in digests:
            if digest not in self.blobs:
                raise NotFound(f"there is no blob {digest}")
            data = self.blobs[digest]
            half = len(data) // 2
            chunks += [(digest, 0, data[:half], False), (digest, half, data[half:], True)]
        answer = self.broken.pop(0)(chunks) if self.broken else chunks
        if isinstance(answer, Exception):
            raise answer
        for chunk in answer:
            yield chunk
