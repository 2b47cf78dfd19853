"""Pair inputs with outputs. Invalid pairs are refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b

from marin.execution.version.paths import Places
from marin.run.mapping.manifest import UNFINISHED
from marin.run.mapping.state import FileTask
from rigging.errors import InvalidRequest
from rigging.filesystem import local_path, url_scheme

Paths = Iterable[str | os.PathLike[str]]
OutputPaths = Paths | Callable[[str], str | os.PathLike[str]]

_MISSING = object()


def file_tasks(
    inputs: Paths,
    outputs: OutputPaths,
    manifest: str | os.PathLike[str] | None = None,
    *,
    processes: bool = False,
) -> Iterator[FileTask]:
    """Yield the files to make, in order.

    Sequences are checked completely before the first is yielded.

    Args:
        inputs: Paths or URLs.
        outputs: The same number of outputs, or a function from input to output.
        manifest: The path of the manifest; None without a manifest.
        processes: Whether workers have separate processes.

    Raises:
        InvalidRequest: An output is not a path, is shared by two inputs, equals its own input, or would be lost with
            its worker's memory; an input or output is the manifest, which would replace it; or the numbers of inputs
            and outputs differ.
    """
    for name, value in (("inputs", inputs), ("outputs", outputs)):
        if isinstance(value, (str, bytes)) or not (isinstance(value, Iterable) or callable(value)):
            raise InvalidRequest(f"map_files: {name} must be paths, not {value!r}")
    if isinstance(inputs, Sequence) and (callable(outputs) or isinstance(outputs, Sequence)):
        for _ in _checked(inputs, outputs, manifest, processes):
            pass
    return _checked(inputs, outputs, manifest, processes)


def _checked(
    inputs: Paths, outputs: OutputPaths, manifest: str | os.PathLike[str] | None, processes: bool
) -> Iterator[FileTask]:
    seen = _Seen()
    places = Places()
    manifests = _written_for(manifest)
    for number, (source, output) in enumerate(_pairs(inputs, outputs)):
        path = _path("output", output, source)
        place = local_path(path)
        # Workers may run in another directory.
        target = path if place is None else place
        if target.endswith("/") or not os.path.basename(target):
            raise InvalidRequest(f"map_files: output {path!r} of input {source!r} names no file")
        if processes and url_scheme(target) == "memory":
            raise InvalidRequest(
                f"map_files: output {path!r} of input {source!r} would be in the memory of its worker's process, and "
                "lost with it; give a file or an object of a store"
            )
        origin = source if (local := local_path(source)) is None else local
        made = places.resolve(_normal(target))
        if made == places.resolve(_normal(origin)):
            raise InvalidRequest(f"map_files: input {source!r} is its own output, so it would count as done")
        for what, given, at in (("input", source, origin), ("output", path, target)):
            if _normal(at) in manifests:
                raise InvalidRequest(f"map_files: {what} {given!r} is where the manifest is written")
        if not seen.add(made):
            raise InvalidRequest(
                f"map_files: output {path!r} of input {source!r} (number {number}) is another input's output, too"
            )
        yield FileTask(number, source, target)


def _pairs(inputs: Paths, outputs: OutputPaths) -> Iterator[tuple[str, str | os.PathLike[str]]]:
    if callable(outputs):
        for each in inputs:
            source = _path("input", each)
            yield source, outputs(source)
        return
    rest = iter(outputs)
    count = 0
    for each in inputs:
        source = _path("input", each)
        output = next(rest, _MISSING)
        if output is _MISSING:
            raise InvalidRequest(f"map_files: there are {count} outputs; input {source!r} (number {count}) has none")
        yield source, output  # type: ignore[misc]
        count += 1
    if (extra := next(rest, _MISSING)) is not _MISSING:
        raise InvalidRequest(f"map_files: there are {count} inputs; output {extra!r} (number {count}) has none")


def _path(what: str, value: object, source: str | None = None) -> str:
    of = "" if source is None else f" of input {source!r}"
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"map_files: {what} {value!r}{of} is not a path")
    return value


def _written_for(manifest: str | os.PathLike[str] | None) -> frozenset[str]:
    """Return the paths of the manifest: the given path, and the target of links."""
    if not isinstance(manifest, str | os.PathLike) or not os.fspath(manifest):
        return frozenset()
    url = os.fspath(manifest)
    place = local_path(url)
    names = [url] if place is None else [place, os.path.realpath(place)]
    return frozenset(_normal(name + end) for name in names for end in ("", UNFINISHED))


def _normal(path: str) -> str:
    scheme = url_scheme(path)
    if scheme in ("gcs", "s3a"):
        return {"gcs": "gs", "s3a": "s3"}[scheme] + path[len(scheme) :]
    return path


class _Seen:
    """Texts already seen, by 8 bytes of their digests: some 70 bytes each."""

    def __init__(self) -> None:
        self._digests: set[int] = set()

    def add(self, text: str) -> bool:
        """Add a text and return whether it is new."""
        digest = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
        before = len(self._digests)
        self._digests.add(digest)
        return len(self._digests) > before
