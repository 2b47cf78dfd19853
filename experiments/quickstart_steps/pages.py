"""The first step: copy the pages of a directory to storage, in shards, so that any machine can read them."""

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass

from experiments.quickstart_steps.storage import write_json
from rigging.errors import InvalidRequest
from rigging.filesystem import write_bytes_atomic

SUFFIXES = (".html", ".htm", ".xhtml")
# Equal pages make equal archives: the time of every file in them is this one.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class PagesConfig:
    """The input and output of the pages' step.

    Attributes:
        directory: The directory of the pages, at any depth, on the machine of the script.
        digest: Digest of the pages' names and contents, so that changed pages make a new output.
        shards: Number of archives.
        output_path: Receives `pages-00000-of-00004.zip` and so on.
    """

    directory: str
    digest: str
    shards: int
    output_path: str


def find_pages(directory: str) -> list[str]:
    """Return the sorted relative paths of all HTML files below a directory. Symbolic links are not followed.

    Raises:
        InvalidRequest: The directory does not exist, or has no HTML file.
    """
    if not os.path.isdir(directory):
        raise InvalidRequest(f"the directory of pages {directory!r} does not exist, or is not a directory")
    found = []
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if name.lower().endswith(SUFFIXES) and not os.path.islink(path) and os.path.isfile(path):
                found.append(os.path.relpath(path, directory).replace(os.sep, "/"))
    if not found:
        raise InvalidRequest(
            f"no page below {directory!r}: expected files named {', '.join('*' + s for s in SUFFIXES)}"
        )
    return sorted(found)


def digest_of_pages(directory: str) -> str:
    """Return a digest of the names and contents of the pages below a directory. Raise like `find_pages`."""
    whole = hashlib.sha256()
    for name in find_pages(directory):
        content = _read(directory, name)
        whole.update(f"{len(name)} {name} {len(content)} ".encode(errors="surrogateescape"))
        whole.update(content)
    return whole.hexdigest()


def shard_name(index: int, shards: int) -> str:
    """Return the file name of one archive of pages."""
    return f"pages-{index:05}-of-{shards:05}.zip"


def take_pages(config: PagesConfig) -> None:
    """Write the unchanged pages into one archive for each shard, round-robin.

    Raises:
        InvalidRequest: The pages have changed since the step was planned.
    """
    names = find_pages(config.directory)
    if digest_of_pages(config.directory) != config.digest:
        raise InvalidRequest(f"the pages in {config.directory!r} have changed since the run began; start the run again")
    for index in range(config.shards):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as pack:
            for name in names[index :: config.shards]:
                entry = zipfile.ZipInfo(name, _EPOCH)
                pack.writestr(entry, _read(config.directory, name), zipfile.ZIP_DEFLATED)
        write_bytes_atomic(os.path.join(config.output_path, shard_name(index, config.shards)), archive.getvalue())
    size = sum(os.path.getsize(os.path.join(config.directory, name)) for name in names)
    write_json(os.path.join(config.output_path, "stats.json"), {"pages": len(names), "bytes": size})


def read_pages(archive: bytes) -> list[tuple[str, bytes]]:
    """Return the names and contents of the pages in an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as pack:
        return [(name, pack.read(name)) for name in pack.namelist()]


def _read(directory: str, name: str) -> bytes:
    with open(os.path.join(directory, name), "rb") as file:
        return file.read()
