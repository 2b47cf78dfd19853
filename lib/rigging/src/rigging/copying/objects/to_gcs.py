"""Copy one file into a prefix on GCS: inside the service, or through this machine."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from rigging.copying.charges import BudgetReservation
from rigging.copying.copy_lock import SMALL_BYTES
from rigging.copying.digest import CorruptCopyError, Digest, check_digest
from rigging.copying.objects.journal import Journal
from rigging.copying.request import Check, CopyRequest, Done, Reserve, Settings, version_of
from rigging.copying.source import check_unchanged, read_chunks, read_whole
from rigging.errors import LeaseLost
from rigging.prefixes.prefix_store import PrefixStore

#: Objects of one lease that GCS is asked to copy at once.
_TOGETHER = 8
_JSON = {"Content-Type": "application/json"}


def rewrite_in_gcs(request: CopyRequest, destination: PrefixStore, reserve: Reserve, check: Check) -> None:
    """Let GCS copy the object, without transferring its bytes through this machine. It appears atomically.

    Args:
        request: The file, and how it is copied.
        destination: The local prefix.
        reserve: Reserves bytes in the transfer budget before they move, and returns the counter of moved bytes.
        check: Raises LeaseLostError if another process has taken over the copy.
    """
    moved = reserve(request.version.size)
    journal = Journal(request, destination)
    token = ""
    try:
        while True:
            answer = _rewrite(request, destination, token)
            if answer.get("done"):
                break
            if not token:
                # Only what takes more than one call is worth looking up, and remembering.
                remembered = journal.read()
                token = remembered if remembered and _is_usable(request, destination, remembered) else ""
            if not token:
                token = str(answer["rewriteToken"])
                journal.write(token)
            check()
        _check_object(request, destination, dict(answer["resource"]))
        moved(request.version.size)
    except FileExistsError:
        pass  # it was written meanwhile: that one stays
    except FileNotFoundError:
        check_unchanged(request)  # of an object that was replaced, the old generation is not found
        raise
    finally:
        # A kill does not come by here; an error does, and leaves nothing.
        if token:
            journal.clear()


def rewrite_small_in_gcs(
    files: Sequence[CopyRequest],
    destination: PrefixStore,
    reservation: BudgetReservation,
    check: Check,
    done: Done | None,
) -> list[CopyRequest]:
    """Let GCS copy small objects of one source in batches. Return those that must be copied separately.

    Args:
        files: The files to copy.
        destination: A prefix on GCS with the same client.
        reservation: The budget reservation for all files of the transfer.
        check: Raises if this process may no longer copy them.
        done: Called for each file that now exists.
    """
    from fsspec.asyn import sync

    small = [request for request in files if request.version.size <= SMALL_BYTES]
    rest = [request for request in files if request.version.size > SMALL_BYTES]
    for start in range(0, len(small), _TOGETHER):
        some = small[start : start + _TOGETHER]
        check()
        charge = reservation.charge_for(some[0])
        moved = charge.reserve(sum(request.version.size for request in some))
        try:
            # By one call into the client's event loop: a thread for each object would cost more than the requests.
            answers = sync(destination.fs.loop, _rewrite_all, some, destination)
            for request, answer in zip(some, answers, strict=True):
                count = _bytes_rewritten(request, destination, answer)
                if count is None:
                    rest.append(request)
                    continue
                moved(count)
                if done is not None:
                    done(request, count)
        finally:
            charge.settle()
    return rest


def upload_to_gcs(
    request: CopyRequest, destination: PrefixStore, settings: Settings, reserve: Reserve, check: Check
) -> None:
    """Copy through this machine: small files by one conditional put, others in parts that are composed at the end.

    Args:
        request: The file, and how it is copied.
        destination: The local prefix.
        settings: Sizes of chunks and parts, in bytes.
        reserve: Reserves bytes in the transfer budget before they move, and returns the counter of moved bytes.
        check: Raises LeaseLostError if another process has taken over the copy.
    """
    if request.version.size <= settings.chunk_bytes:
        data = read_whole(request, settings, reserve)
        check()
        with contextlib.suppress(FileExistsError):  # it was written meanwhile: that one stays
            destination.fs.pipe_file(destination.path(request.path), data, mode="create", consistency="md5")
        return
    directory = Journal(request, destination).directory
    try:
        parts = _upload_parts(request, destination, directory, settings, reserve, check)
        _compose(request, destination, parts, settings.gcs_compose_parts)
    except LeaseLost:
        raise  # the successor goes on with what was sent
    except Exception:
        _remove_parts(destination, directory)
        raise
    _remove_parts(destination, directory)


def _rewrite(request: CopyRequest, destination: PrefixStore, token: str) -> dict[str, Any]:
    arguments, options = _rewrite_call(request, destination, token)
    answer: dict[str, Any] = destination.fs.call(*arguments, **options)
    return answer


async def _rewrite_all(files: Sequence[CopyRequest], destination: PrefixStore) -> list[dict[str, Any] | BaseException]:
    call = getattr(destination.fs, "_call")  # noqa: B009 - the async twin of `call`, as fsspec names them
    calls = (_rewrite_call(request, destination, "") for request in files)
    requests = [call(*arguments, **options) for arguments, options in calls]
    answers: list[dict[str, Any] | BaseException] = await asyncio.gather(*requests, return_exceptions=True)
    return answers


def _rewrite_call(request: CopyRequest, destination: PrefixStore, token: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    source_bucket, _, source_key = request.source_path.partition("/")
    bucket, _, key = destination.path(request.path).partition("/")
    arguments = ("POST", "b/{}/o/{}/rewriteTo/b/{}/o/{}", source_bucket, source_key, bucket, key)
    options = {
        "headers": _JSON,
        "sourceGeneration": request.version.generation or None,
        "ifGenerationMatch": "0",
        "rewriteToken": token or None,
        "json_out": True,
    }
    return arguments, options


def _bytes_rewritten(
    request: CopyRequest, destination: PrefixStore, answer: dict[str, Any] | BaseException
) -> int | None:
    """Return the bytes that one call copied: 0 if the object existed, None if it must be retried separately."""
    if isinstance(answer, FileExistsError):
        return 0
    if isinstance(answer, BaseException) or not answer.get("done"):
        return None
    try:
        _check_object(request, destination, dict(answer["resource"]))
    except CorruptCopyError:
        return None
    return request.version.size


def _is_usable(request: CopyRequest, destination: PrefixStore, token: str) -> bool:
    from gcsfs.retry import HttpError

    try:
        _rewrite(request, destination, token)
    except (HttpError, ValueError):
        return False  # a week old, or of a source that has changed
    return True


def _check_object(request: CopyRequest, destination: PrefixStore, resource: dict[str, Any]) -> None:
    got = version_of({**resource, "size": int(resource["size"])}, destination.url(request.path))
    expected = request.version
    same = got.size == expected.size and got.md5 in ("", expected.md5 or got.md5)
    if same and got.crc32c in ("", expected.crc32c or got.crc32c):
        return
    _delete_generation(destination, destination.path(request.path), got.generation)
    raise CorruptCopyError(f"{request.source_url}: the copy's size or checksum is not the source's; it was discarded")


def _delete_generation(destination: PrefixStore, path: str, generation: str) -> None:
    bucket, _, key = path.partition("/")
    with contextlib.suppress(FileNotFoundError, FileExistsError):  # gone, or replaced already
        destination.fs.call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=generation)


def _upload_parts(
    request: CopyRequest, destination: PrefixStore, directory: str, settings: Settings, reserve: Reserve, check: Check
) -> list[str]:
    fs = destination.fs
    count = -(-request.version.size // settings.chunk_bytes)
    names = [f"{directory}/{index:06d}" for index in range(count)]
    try:
        sizes = {path: entry["size"] for path, entry in fs.find(directory, detail=True).items()}
    except FileNotFoundError:
        sizes = {}
    done = 0
    while done < count - 1 and sizes.get(names[done]) == settings.chunk_bytes:
        done += 1
    digest = Digest(request.version)
    for name in names[:done]:
        digest.update(fs.cat_file(name))
    begin = done * settings.chunk_bytes
    moved = reserve(request.version.size - begin)
    for index, data in enumerate(read_chunks(request, begin, settings), start=done):
        moved(len(data))
        digest.update(data)
        check()
        fs.pipe_file(names[index], data, consistency="md5")
    check_digest(digest, request.source, request.path)
    return names


def _compose(request: CopyRequest, destination: PrefixStore, parts: list[str], most: int) -> None:
    """Compose the parts into the object, in a tree if one call cannot take all. Only the last call makes it visible."""
    level, directory = 0, Journal(request, destination).directory
    while len(parts) > most:
        level += 1
        groups = [parts[start : start + most] for start in range(0, len(parts), most)]
        parts = [f"{directory}/level{level}-{index:06d}" for index in range(len(groups))]
        for target, group in zip(parts, groups, strict=True):
            _compose_call(destination, target, group, None)
    with contextlib.suppress(FileExistsError):
        _check_object(request, destination, _compose_call(destination, destination.path(request.path), parts, "0"))


def _compose_call(destination: PrefixStore, target: str, parts: list[str], generation: str | None) -> dict[str, Any]:
    bucket, _, key = target.partition("/")
    sources = [{"name": part.partition("/")[2]} for part in parts]
    answer: dict[str, Any] = destination.fs.call(
        "POST",
        "b/{}/o/{}/compose",
        bucket,
        key,
        headers=_JSON,
        json={"sourceObjects": sources, "destination": {"contentType": "application/octet-stream"}},
        ifGenerationMatch=generation,
        json_out=True,
    )
    return answer


def _remove_parts(destination: PrefixStore, directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        paths = destination.fs.find(directory)
        if paths:
            destination.fs.rm(paths)
