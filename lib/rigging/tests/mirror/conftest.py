"""Regions to mirror between: three prefixes on each kind of storage, the local one first."""

import contextlib
import io
import itertools
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from rigging.filesystem.budget import TransferBudget, mirror_budget
from rigging.mirror.fs import MirrorFileSystem
from support.rigging.gcs_server import GcsServer
from support.rigging.s3_server import S3Server

STORES = ("local", "memory", "gcs", "s3")
#: Where the buckets of the first, second and third region are: what crosses between them is charged.
LOCATIONS = ("us-central1", "us-east1", "europe-west4")
_numbers = itertools.count()


class UnreadFile(io.BytesIO):
    def read(self, *_: Any) -> bytes:
        raise FileNotFoundError("it is missed at the first read only")


class DiskFileSystem(LocalFileSystem):
    """A filesystem unknown to the mirror. Like some others, it looks for a file only at the first read."""

    protocol = "disk"

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb" and not self.exists(path):
            return UnreadFile()
        return super().open(path, mode, **options)


@dataclass
class Regions:
    """The configured prefixes, and a mirror over them."""

    prefixes: list[str]
    fs: MirrorFileSystem

    def raw(self, region: int) -> fsspec.AbstractFileSystem:
        """Return the filesystem of one region, without cached listings."""
        return fsspec.core.url_to_fs(self.prefixes[region], use_listings_cache=False)[0]

    def put(self, region: int, path: str, data: bytes) -> None:
        fs, own = fsspec.core.url_to_fs(f"{self.prefixes[region]}/{path}", use_listings_cache=False)
        if self.prefixes[region].startswith(("/", "disk:")):
            fs.makedirs(os.path.dirname(own), exist_ok=True)
        fs.pipe_file(own, data)

    def has(self, region: int, path: str) -> bytes | None:
        """Return the bytes of a file in one region; None if the file does not exist there."""
        fs, own = fsspec.core.url_to_fs(f"{self.prefixes[region]}/{path}", use_listings_cache=False)
        try:
            content: bytes = fs.cat_file(own)
            return content
        except FileNotFoundError:
            return None

    def files(self, region: int) -> list[str]:
        """Return every file of one region except fencing numbers, including hidden files."""
        fs, own = fsspec.core.url_to_fs(self.prefixes[region], use_listings_cache=False)
        found = [path[len(own) :].strip("/") for path in fs.find(own)]
        return sorted(path for path in found if not path.endswith(".lock.fence"))


@pytest.fixture(scope="session")
def gcs(gcs_process: GcsServer) -> Iterator[GcsServer]:
    with _in_force(gcs_process.environment()):
        yield gcs_process


@pytest.fixture(scope="session")
def s3(s3_process: S3Server) -> Iterator[S3Server]:
    with _in_force(s3_process.environment()):
        yield s3_process


@contextlib.contextmanager
def _in_force(environment: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def make_prefix(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that makes a fresh prefix on a store."""

    def make(store: str, location: str = "us-central1") -> str:
        name = f"region-{next(_numbers)}"
        if store == "gcs":
            request.getfixturevalue("gcs").create_bucket(name, location)
        elif store == "s3":
            request.getfixturevalue("s3").create_bucket(name)
        elif store != "memory":
            fsspec.register_implementation("disk", DiskFileSystem, clobber=True)
            (tmp_path / name).mkdir()
        return {
            "gcs": f"gs://{name}/base",
            "s3": f"s3://{name}/base",
            "memory": f"memory://{name}",
            "disk": f"disk://{tmp_path / name}",
            "local": str(tmp_path / name),
        }[store]

    return make


@pytest.fixture
def make_regions(make_prefix: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that configures prefixes on these stores, the first as the local one."""

    def make(*stores: str, **options: Any) -> Regions:
        prefixes = [make_prefix(store, location) for store, location in zip(stores, LOCATIONS, strict=False)]
        monkeypatch.setenv("MARIN_PREFIX", prefixes[0])
        monkeypatch.setenv("MARIN_MIRROR_PREFIXES", ",".join(prefixes))
        return Regions(prefixes, MirrorFileSystem(**options))

    return make


@pytest.fixture
def budget() -> Iterator[TransferBudget]:
    with mirror_budget(1.0) as given:
        yield given


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Outside of the soak tier, run each of fsspec's tests on one of the two object stores, and long tables on none."""
    for item in items:
        stores = [name for name in ("OnGcs", "OnS3") if name in item.nodeid]
        is_this_ones_turn = "glob" not in item.name and zlib.crc32(item.name.encode()) % 2
        if stores and ("glob_edge_cases" in item.name or stores[0] != ("OnS3" if is_this_ones_turn else "OnGcs")):
            item.add_marker(pytest.mark.soak)
        if stores or ("glob_edge_cases" in item.name and "OnMemory" not in item.nodeid):
            item.add_marker(pytest.mark.process)
