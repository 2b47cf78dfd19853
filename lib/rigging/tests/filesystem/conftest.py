"""Objects in two regions behind a real GCS protocol, and a transfer budget."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rigging.filesystem import CrossRegionGuardedFS, TransferBudget, filesystem, mirror_budget
from rigging.filesystem.bucket_location import BUCKET_LOCATIONS
from support.rigging.gcs_server import GcsServer


@pytest.fixture(scope="session")
def content() -> bytes:
    return bytes(index % 251 for index in range(3000))


@pytest.fixture
def here(gcs_server: GcsServer, content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A path below the local region's bucket. The same path below marin-eu-west4 is in another region."""
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central2")
    BUCKET_LOCATIONS.forget()
    root = f"guard-{tmp_path.name}"
    fs = filesystem("gs").unguarded
    for bucket in ("marin-us-central2", "marin-eu-west4"):
        fs.pipe({f"{bucket}/{root}/{name}": content for name in ("a", "b")})
    fs.invalidate_cache()
    yield f"marin-us-central2/{root}"
    BUCKET_LOCATIONS.forget()


@pytest.fixture
def away(here: str) -> str:
    return here.replace("us-central2", "eu-west4")


@pytest.fixture
def budget() -> Iterator[TransferBudget]:
    with mirror_budget(1) as budget:
        yield budget


@pytest.fixture
def fs(here: str) -> CrossRegionGuardedFS:
    fs = filesystem("gs")
    assert isinstance(fs, CrossRegionGuardedFS)
    return fs
