"""Checks that a submitted job's bundle and callable are present, complete and safe to unpack."""

import asyncio

from iris.controller.storage.blobs import BlobStore
from iris.domain.job_spec import CallableEntrypoint, JobSpec
from iris.rpc.manifest import MAX_MANIFEST_BYTES, BundleEntry, check_entries, check_sizes, parse_manifest
from rigging.errors import InvalidRequest, NotFound


class UploadChecks:
    """Check the uploads of jobs, each bundle and callable once.

    Checks run one at a time, in a thread: a manifest of maximum size takes seconds and much memory.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._lock = asyncio.Lock()
        # Bundle → the store's count of removals when all of it was found to be there.
        self._complete: dict[str, int] = {}

    def is_known(self, spec: JobSpec) -> bool:
        """Return whether all of the job's uploads were checked earlier and still exist."""
        payload = _payload(spec)
        return (not payload or self._blobs.is_verified(payload)) and (
            not spec.bundle_digest or self._is_complete(spec.bundle_digest)
        )

    async def check(self, spec: JobSpec) -> None:
        """Raise InvalidRequest, naming the job and the problem with its bundle or callable."""
        async with self._lock:
            if not self.is_known(spec):
                await asyncio.to_thread(self._check, spec)

    def _is_complete(self, bundle: str) -> bool:
        return self._complete.get(bundle) == self._blobs.removals and self._blobs.has(bundle)

    def _check(self, spec: JobSpec) -> None:
        payload, bundle = _payload(spec), spec.bundle_digest
        if payload and not self._blobs.verify(payload):
            raise InvalidRequest(f"job {spec.job_id}: its callable {payload} is not uploaded; upload blobs first")
        if not bundle or self._is_complete(bundle):
            return
        removals = self._blobs.removals
        if not self._blobs.verify(bundle):
            raise InvalidRequest(f"job {spec.job_id}: its bundle {bundle} is not uploaded; upload blobs first")
        try:
            self._check_bundle(bundle)
        except (InvalidRequest, NotFound) as error:
            raise InvalidRequest(f"job {spec.job_id}: its bundle {bundle[:12]} cannot be used: {error}") from None
        self._complete[bundle] = removals

    def _check_bundle(self, digest: str) -> None:
        size = self._blobs.size(digest)
        if size > MAX_MANIFEST_BYTES:  # before it is read: a blob may have any size
            raise InvalidRequest(f"its manifest has {size} bytes; at most {MAX_MANIFEST_BYTES} are allowed")
        entries = parse_manifest(b"".join(data for _, data, _ in self._blobs.read(digest)))
        check_entries(entries)
        self._check_parts(entries)

    def _check_parts(self, entries: list[BundleEntry]) -> None:
        sizes: dict[str, int] = {}
        for entry in entries:
            for part in entry.part_digests:
                if part not in sizes:
                    if not self._blobs.verify(part):
                        raise InvalidRequest(
                            f"part {part[:12]} of file {entry.path!r} is not uploaded; upload blobs first"
                        )
                    sizes[part] = self._blobs.size(part)
        check_sizes(entries, sizes)


def _payload(spec: JobSpec) -> str:
    return spec.entrypoint.payload_digest if isinstance(spec.entrypoint, CallableEntrypoint) else ""
