"""fsspec's own conformance suite, over prefixes on each kind of storage."""

from typing import Any

import pytest
from fsspec.tests import abstract

from rigging.mirror.fs import MirrorFileSystem


class MirrorFixtures(abstract.AbstractFixtures):
    stores: tuple[str, ...] = ()

    @pytest.fixture
    def fs(self, make_regions: Any) -> MirrorFileSystem:
        return make_regions(*self.stores).fs

    @pytest.fixture
    def fs_path(self) -> str:
        return "test"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(part.rstrip("/") if n + 1 < len(parts) else part for n, part in enumerate(parts))

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return self.stores[0] in ("local", "memory")


class OnLocal(MirrorFixtures):
    stores = ("local", "memory")


class OnMemory(MirrorFixtures):
    stores = ("memory", "local")


# The conftest.py gives these and the next pytest.mark.process, and half of them pytest.mark.soak.
class OnGcs(MirrorFixtures):
    stores = ("gcs", "gcs")


class OnS3(MirrorFixtures):
    stores = ("s3", "s3")


class AfterRemovals(MirrorFixtures):
    """Another region has files of the same names, which were removed here."""

    stores = ("local", "local")

    @pytest.fixture
    def fs(self, make_regions: Any) -> MirrorFileSystem:
        regions = make_regions(*self.stores)
        for top in ("source", "target", "source/subdir", "target/subdir", "source/subdir/nesteddir"):
            for name in ("file1", "file2", "subfile1", "nestedfile", "newfile", "a", "b"):
                regions.put(1, f"test/{top}/{name}", b"former")
        regions.fs.rm("test", recursive=True)
        return regions.fs


SUITES = (
    abstract.AbstractCopyTests,
    abstract.AbstractGetTests,
    abstract.AbstractPutTests,
    abstract.AbstractOpenTests,
    abstract.AbstractPipeTests,
)

for fixtures in (OnLocal, OnMemory, OnGcs, OnS3, AfterRemovals):
    for suite in SUITES:
        name = f"Test{suite.__name__.removeprefix('Abstract').removesuffix('Tests')}{fixtures.__name__}"
        globals()[name] = type(name, (suite, fixtures), {"__module__": __name__})
