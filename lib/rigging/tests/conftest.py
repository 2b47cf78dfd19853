from collections.abc import Iterator

import pytest

from rigging.filesystem.region import forget_metadata
from rigging.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(autouse=True)
def outside_any_cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests see neither this machine's prefix nor its region."""
    monkeypatch.delenv("MARIN_PREFIX", raising=False)
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    monkeypatch.setattr("rigging.filesystem.region.may_be_gcp", lambda environ: bool(environ.get("GCE_METADATA_HOST")))
    forget_metadata()
    yield
    forget_metadata()
