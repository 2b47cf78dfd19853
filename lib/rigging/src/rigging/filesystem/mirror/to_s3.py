"""Copying one file into a prefix on S3: by the service itself, or through this machine."""

import contextlib
import dataclasses
import errno
from collections.abc import Callable, Iterator
from typing import Any

from rigging.filesystem.mirror.digest import CorruptCopyError, Digest, check_digest, check_size
from rigging.filesystem.mirror.journal import Journal
from rigging.filesystem.mirror.plan import Settings, Wanted, chunks
from rigging.filesystem.mirror.root import Root
from rigging.filesystem.mirror.to_local import Moved, check_unchanged, read_chunks

_MOST_PARTS = 10_000
_SMALLEST_PART_BYTES = 5 * 2**20
_ONE_COPY_BYTES = 512 * 2**20

Charge = Callable[[int], Moved]
Check = Callable[[], None]


def copy_in_s3(wanted: Wanted, destination: Root, charge: Charge, check: Check) -> None:
    """Let S3 copy the object; none of its bytes come through here. It appears whole, or not at all."""
    source_bucket, _, source_key = wanted.source_path.partition("/")
    copy_source = {"Bucket": source_bucket, "Key": source_key}
    if wanted.version.size <= _ONE_COPY_BYTES:
        moved = charge(wanted.version.size)
        try:
            same = {"CopySourceIfMatch": wanted.version.mark, "IfNoneMatch": "*"}
            _call(destination, wanted, "copy_object", CopySource=copy_source, **same)
        except FileExistsError:
            # Which of the two conditions failed is not told.
            check_unchanged(wanted)
            return
        moved(wanted.version.size)
        return
    upload = _Upload(wanted, destination, _part_bytes(wanted.version.size, _ONE_COPY_BYTES))

    def send(number: int, begin: int, end: int) -> str:
        check()
        bounds = f"bytes={begin}-{end - 1}"
        answer = upload.call("upload_part_copy", PartNumber=number, CopySource=copy_source, CopySourceRange=bounds)
        return str(answer["CopyPartResult"]["ETag"])

    moved = charge(wanted.version.size - upload.bytes_done)
    for piece in upload.missing():
        upload.add(send(*piece))
        moved(piece[2] - piece[1])
    check_unchanged(wanted)
    upload.complete()


def upload_to_s3(wanted: Wanted, destination: Root, settings: Settings, charge: Charge, check: Check) -> None:
    """Copy through this machine: small files by one conditional put, others in parts, completed at the end."""
    size = wanted.version.size
    digest = Digest(wanted.version)
    if size <= max(settings.chunk_bytes, _SMALLEST_PART_BYTES):
        moved = charge(size)
        data = b"".join(read_chunks(wanted, 0, settings))
        moved(len(data))
        digest.update(data)
        check_size(len(data), wanted.version, wanted.source_url)
        check_digest(digest, wanted.source, wanted.path)
        check()
        _put(destination, wanted, data)
        return
    # The client holds several copies of a part, so they are as small as S3 has them.
    part_bytes = _part_bytes(size, _SMALLEST_PART_BYTES)
    settings = dataclasses.replace(settings, chunk_bytes=min(settings.chunk_bytes, part_bytes))
    upload = _Upload(wanted, destination, part_bytes)
    moved = charge(size - upload.bytes_done)
    resumed = upload.bytes_done > 0
    try:
        data_of_parts = _regroup(read_chunks(wanted, upload.bytes_done, settings), part_bytes)
        for (number, _, _), data in zip(upload.missing(), data_of_parts, strict=True):
            check()
            moved(len(data))
            digest.update(data)
            upload.add(str(upload.call("upload_part", PartNumber=number, Body=data)["ETag"]))
        if not resumed:
            # Parts of an upload cannot be read back, so a resumed one is checked by sizes and part checksums only.
            check_digest(digest, wanted.source, wanted.path)
    except Exception:
        upload.abort()
        raise
    upload.complete()


def _part_bytes(size: int, wanted_bytes: int) -> int:
    return max(wanted_bytes, _SMALLEST_PART_BYTES, -(-size // _MOST_PARTS))


class _Upload:
    """A multipart upload that survives a kill: its id is in the journal, its parts are known to S3."""

    def __init__(self, wanted: Wanted, destination: Root, part_bytes: int) -> None:
        self._wanted = wanted
        self._destination = destination
        self._pieces = [
            (number, *piece) for number, piece in enumerate(chunks(0, wanted.version.size, part_bytes), start=1)
        ]
        self._journal = Journal(wanted, destination)
        self._id = self._journal.read()
        self._etags = self._parts_there() if self._id else []
        if not self._id:
            self._id = str(_call(destination, wanted, "create_multipart_upload")["UploadId"])
            self._journal.write(self._id)

    @property
    def bytes_done(self) -> int:
        """How many bytes an earlier copier has sent."""
        return self._pieces[len(self._etags) - 1][2] if self._etags else 0

    def missing(self) -> list[tuple[int, int, int]]:
        """Return (number, start, end) of the parts that are still to be sent."""
        return self._pieces[len(self._etags) :]

    def add(self, etag: str) -> None:
        """Take note of the next part."""
        self._etags.append(etag)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call S3 about this upload."""
        return _call(self._destination, self._wanted, method, UploadId=self._id, **arguments)

    def complete(self) -> None:
        """Make the object appear, unless one has been written meanwhile."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(self._etags, start=1)]
        try:
            self.call("complete_multipart_upload", MultipartUpload={"Parts": parts}, IfNoneMatch="*")
        except FileExistsError:
            self.abort()
            return
        self._journal.clear()
        info = self._destination.info(self._wanted.path)
        if info is None or info["size"] != self._wanted.version.size:
            got = "nothing" if info is None else f"{info['size']} bytes"
            self._destination.fs.rm_file(self._destination.path(self._wanted.path))
            raise CorruptCopyError(f"{self._wanted.source_url}: {got} arrived of {self._wanted.version.size} bytes")

    def abort(self) -> None:
        """Remove what was sent."""
        # Missing when it was completed, or removed by a rule of the bucket.
        with contextlib.suppress(FileNotFoundError):
            self.call("abort_multipart_upload")
        self._journal.clear()

    def _parts_there(self) -> list[str]:
        listed: dict[int, tuple[int, str]] = {}
        marker = 0
        try:
            while True:
                answer = self.call("list_parts", PartNumberMarker=marker)
                for part in answer.get("Parts", ()):
                    listed[int(part["PartNumber"])] = (int(part["Size"]), str(part["ETag"]))
                if not answer.get("IsTruncated"):
                    break
                marker = int(answer["NextPartNumberMarker"])
        except FileNotFoundError:
            self._id = ""
            return []
        etags = []
        for number, begin, end in self._pieces:
            size, etag = listed.get(number, (-1, ""))
            if size != end - begin:
                break
            etags.append(etag)
        return etags


def _regroup(data: Iterator[bytes], part_bytes: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of `part_bytes`."""
    pending: list[bytes] = []
    have = 0
    for chunk in data:
        if not have and len(chunk) == part_bytes:
            yield chunk  # as it is: joining would hold it several times over
            continue
        pending.append(chunk)
        have += len(chunk)
        while have >= part_bytes:
            joined = b"".join(pending)
            yield joined[:part_bytes]
            pending, have = [joined[part_bytes:]], have - part_bytes
    if have:
        yield b"".join(pending)


def _put(destination: Root, wanted: Wanted, data: bytes) -> None:
    try:
        _call(destination, wanted, "put_object", Body=data, IfNoneMatch="*")
    except FileExistsError:
        return  # somebody wrote it meanwhile: theirs stays


def _call(destination: Root, wanted: Wanted, method: str, **arguments: Any) -> dict[str, Any]:
    """Call S3 about the destination object; FileExistsError when its precondition failed."""
    bucket, _, key = destination.path(wanted.path).partition("/")
    try:
        answer: dict[str, Any] = destination.fs.call_s3(method, Bucket=bucket, Key=key, **arguments)
    except FileExistsError:
        raise
    except OSError as error:
        # s3fs reports a failed precondition as "invalid argument", as it does other things: only that one is ours.
        if error.errno == errno.EINVAL and "recondition" in str(error):
            raise FileExistsError(destination.url(wanted.path)) from error
        raise
    return answer
