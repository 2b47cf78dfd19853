"""Copy one file into a prefix on S3: inside the service, or through this machine."""

import base64
import contextlib
import dataclasses
import errno
import functools
import hashlib
import io
import tempfile
from collections.abc import Generator, Iterator
from typing import Any, Self

from rigging.copying.digest import CorruptCopyError, Digest, check_digest
from rigging.copying.objects.journal import Journal
from rigging.copying.request import Check, CopyRequest, Reserve, Settings, chunks
from rigging.copying.source import check_unchanged, read_chunks, read_whole
from rigging.errors import LeaseLost
from rigging.prefixes.prefix_store import PrefixStore
from rigging.timing import ExponentialBackoff, retry_with_backoff

_SMALLEST_PART_BYTES = 5 * 2**20
_TRIES = 3
_md5 = functools.partial(hashlib.md5, usedforsecurity=False)


def copy_in_s3(
    request: CopyRequest, destination: PrefixStore, settings: Settings, reserve: Reserve, check: Check
) -> None:
    """Let S3 copy the object, without transferring its bytes through this machine. It appears atomically.

    Args:
        request: The file, and how it is copied.
        destination: The local prefix.
        settings: Sizes of chunks and parts, in bytes.
        reserve: Reserves bytes in the transfer budget before they move, and returns the counter of moved bytes.
        check: Raises LeaseLostError if another process has taken over the copy.
    """
    source_bucket, _, source_key = request.source_path.partition("/")
    copy_source = {"Bucket": source_bucket, "Key": source_key}
    if request.version.size <= settings.s3_copy_bytes:
        moved = reserve(request.version.size)
        try:
            same = {"CopySourceIfMatch": request.version.mark, "IfNoneMatch": "*"}
            _call(destination, request, "copy_object", CopySource=copy_source, **same)
        except FileExistsError:
            # Which of the two conditions failed is not told.
            check_unchanged(request)
            return
        moved(request.version.size)
        return
    upload = _Upload.of(request, destination, _part_bytes(request.version.size, settings.s3_copy_bytes, settings))

    def send(number: int, begin: int, end: int) -> str:
        check()
        bounds = f"bytes={begin}-{end - 1}"
        answer = upload.call("upload_part_copy", PartNumber=number, CopySource=copy_source, CopySourceRange=bounds)
        return str(answer["CopyPartResult"]["ETag"])

    with upload.aborted_by_errors():
        moved = reserve(request.version.size - upload.bytes_done)
        for piece in upload.missing():
            upload.add(send(*piece))
            moved(piece[2] - piece[1])
        check_unchanged(request)
    upload.complete()


def upload_to_s3(
    request: CopyRequest, destination: PrefixStore, settings: Settings, reserve: Reserve, check: Check
) -> None:
    """Copy through this machine: small files by one conditional put, others in parts, completed at the end.

    Args:
        request: The file, and how it is copied.
        destination: The local prefix.
        settings: Sizes of chunks and parts, in bytes.
        reserve: Reserves bytes in the transfer budget before they move, and returns the counter of moved bytes.
        check: Raises LeaseLostError if another process has taken over the copy.
    """
    size = request.version.size
    if size <= max(settings.chunk_bytes, _SMALLEST_PART_BYTES):
        data = read_whole(request, settings, reserve)
        check()
        with contextlib.suppress(FileExistsError):  # it was written meanwhile: that one stays
            _call(destination, request, "put_object", Body=data, IfNoneMatch="*")
        return
    # As small as S3 has them, so that they fit in memory.
    part_bytes = _part_bytes(size, _SMALLEST_PART_BYTES, settings)
    settings = dataclasses.replace(settings, chunk_bytes=min(settings.chunk_bytes, part_bytes))
    upload = _Upload.of(request, destination, part_bytes)
    digest = Digest(request.version)
    moved = reserve(size - upload.bytes_done)
    resumed = upload.bytes_done > 0

    def counted() -> Iterator[bytes]:
        for data in read_chunks(request, upload.bytes_done, settings):
            check()
            moved(len(data))
            digest.update(data)
            yield data

    with upload.aborted_by_errors():
        in_memory = part_bytes <= settings.s3_memory_bytes
        made: Generator[bytes | io.BufferedRandom] = (
            _regroup(counted(), part_bytes) if in_memory else _spooled(counted(), part_bytes)
        )
        # Closed here. A traceback would keep it until garbage is collected, maybe in a thread that is starting: that
        # holds the lock without which the thread that reads ahead cannot be joined (before Python 3.13).
        with contextlib.closing(made) as parts:
            for (number, _, _), body in zip(upload.missing(), parts, strict=True):
                check()
                upload.add(upload.send(number, body))
        if not resumed:
            # Parts of an upload cannot be read back, so a resumed one is checked by sizes and part checksums only.
            check_digest(digest, request.source, request.path)
    upload.complete()


def _part_bytes(size: int, wanted_bytes: int, settings: Settings) -> int:
    return max(wanted_bytes, _SMALLEST_PART_BYTES, -(-size // settings.s3_parts))


class _Upload:
    """A multipart upload that survives a kill: the journal keeps its id, and S3 keeps its parts."""

    def __init__(self, request: CopyRequest, destination: PrefixStore, part_bytes: int) -> None:
        self._wanted = request
        self._destination = destination
        self._pieces = [
            (number, *piece) for number, piece in enumerate(chunks(0, request.version.size, part_bytes), start=1)
        ]
        self._journal = Journal(request, destination)
        self._id = ""
        self._etags: list[str] = []

    @classmethod
    def of(cls, request: CopyRequest, destination: PrefixStore, part_bytes: int) -> Self:
        """Resume the upload in the journal if S3 still has it, or begin one."""
        upload = cls(request, destination, part_bytes)
        upload._id = upload._journal.read()
        upload._etags = upload._parts_there() if upload._id else []
        if not upload._id:
            upload._id = str(_call(destination, request, "create_multipart_upload")["UploadId"])
            upload._journal.write(upload._id)
        return upload

    @property
    def bytes_done(self) -> int:
        """Return the bytes that an earlier copier sent."""
        return self._pieces[len(self._etags) - 1][2] if self._etags else 0

    def missing(self) -> list[tuple[int, int, int]]:
        """Return (number, start, end) of the parts that are still missing."""
        return self._pieces[len(self._etags) :]

    def add(self, etag: str) -> None:
        """Record the next part."""
        self._etags.append(etag)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call S3 for this upload."""
        return _call(self._destination, self._wanted, method, UploadId=self._id, **arguments)

    def send(self, number: int, body: bytes | io.BufferedRandom) -> str:
        """Send one part and return its ETag."""
        if isinstance(body, bytes):
            return str(self.call("upload_part", PartNumber=number, Body=body)["ETag"])
        # A client that tries again sends a file from wherever it stands: S3 is to refuse what is not the part.
        mark = base64.b64encode(hashlib.file_digest(body, _md5).digest()).decode()

        def attempt() -> str:
            body.seek(0)
            return str(self.call("upload_part", PartNumber=number, Body=body, ContentMD5=mark)["ETag"])

        pauses = ExponentialBackoff()
        return retry_with_backoff(
            attempt, retryable=OSError, max_attempts=_TRIES, backoff=pauses, operation="send a part"
        )

    def complete(self) -> None:
        """Make the object appear, unless one was written meanwhile."""
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
        """Delete the parts sent so far."""
        # Missing when it was completed, or removed by a rule of the bucket.
        with contextlib.suppress(FileNotFoundError):
            self.call("abort_multipart_upload")
        self._journal.clear()

    @contextlib.contextmanager
    def aborted_by_errors(self) -> Iterator[None]:
        """Delete the parts sent so far if the block fails. After a kill or a lost lease the successor resumes
        instead.
        """
        try:
            yield
        except LeaseLost:
            raise
        except Exception:
            self.abort()
            raise

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


def _regroup(data: Iterator[bytes], part_bytes: int) -> Generator[bytes]:
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


def _spooled(data: Iterator[bytes], part_bytes: int) -> Generator[io.BufferedRandom]:
    """Yield the same bytes as open files of `part_bytes`. Each file is closed when the next is requested."""
    rest = b""
    while True:
        with tempfile.TemporaryFile(prefix="marin-part-") as part:
            part.write(rest)
            have, rest = len(rest), b""
            while have < part_bytes and (chunk := next(data, b"")):
                part.write(chunk[: part_bytes - have])
                rest = chunk[part_bytes - have :]
                have = min(part_bytes, have + len(chunk))
            if not have:
                return
            part.seek(0)
            yield part


def _call(destination: PrefixStore, request: CopyRequest, method: str, **arguments: Any) -> dict[str, Any]:
    """Call S3 for the destination object. Raise FileExistsError if the precondition failed."""
    bucket, _, key = destination.path(request.path).partition("/")
    try:
        answer: dict[str, Any] = destination.fs.call_s3(method, Bucket=bucket, Key=key, **arguments)
    except FileExistsError:
        raise
    except OSError as error:
        # s3fs reports a failed precondition as "invalid argument", as it does other things: only that one is ours.
        if error.errno == errno.EINVAL and "recondition" in str(error):
            raise FileExistsError(destination.url(request.path)) from error
        raise
    return answer
