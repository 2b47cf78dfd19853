from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rigging.filesystem import REGION_TO_DATA_BUCKET, data_bucket, marin_region, region_from_prefix
from rigging.filesystem.region import fetch_zone, may_be_gcp, region_from_metadata
from rigging.gce_metadata import Metadata

REAL_MAY_BE_GCP = may_be_gcp


@pytest.mark.parametrize(
    ("prefix", "region"),
    [
        ("gs://marin-us-central2", "us-central2"), ("gs://marin-us-central2/scratch/me", "us-central2"),
        ("gs://marin-eu-west4/x", "europe-west4"), ("gs://marin-asia-northeast1/", "asia-northeast1"),
        ("gs://marin-tpu-v4/x", None), ("gs://marin-us-central2-backup/x", None),
        ("gs://other/marin-us-central2", None), ("s3://marin-us-central2", None), ("/tmp/marin", None), ("", None),
        (None, None),
    ],
)  # fmt: skip
def test_region_from_prefix(prefix: str | None, region: str | None) -> None:
    assert region_from_prefix(prefix) == region


def test_buckets_and_regions_are_inverse() -> None:
    for region in [*REGION_TO_DATA_BUCKET, "asia-southeast1", "europe-west1"]:
        assert region_from_prefix(f"gs://{data_bucket(region)}") == region


def test_metadata_gives_the_region_and_is_asked_once(metadata_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: region_from_metadata(), range(8))) == {"us-central2"}
    assert metadata_server.asked == [("/computeMetadata/v1/instance/zone", "Google")]


@pytest.mark.parametrize(("asked_before", "region"), [(True, "us-east1"), (False, "us-central2")])
def test_the_metadata_server_decides_when_it_answers_and_is_not_asked_again(
    metadata_server: Any, monkeypatch: pytest.MonkeyPatch, asked_before: bool, region: str
) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-east1")
    if asked_before:
        assert marin_region() == "us-east1", "a laptop's answer is kept for the process"
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    assert marin_region() == region


def test_a_server_that_is_no_metadata_server_gives_no_region(
    metadata_server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metadata_server.headers = {}
    with pytest.raises(OSError, match="unlike a metadata server"):
        fetch_zone(metadata_server.host)
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    assert region_from_metadata() is None
    assert "region unknown" in caplog.text


def test_only_machines_that_may_be_in_gcp_ask(tmp_path: Path) -> None:
    google, other = tmp_path / "google", tmp_path / "other"
    google.write_text("Google Compute Engine\n")
    other.write_text("ThinkPad\n")
    assert [REAL_MAY_BE_GCP({}, str(path)) for path in (google, other, tmp_path / "none")] == [True, False, False]
    assert REAL_MAY_BE_GCP({"GCE_METADATA_HOST": "localhost:1"}, str(other))


def test_a_silent_server_costs_a_second_at_most_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    patience: list[float] = []

    def ask(host: str, question: str, timeout: float) -> Metadata:
        patience.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr("rigging.filesystem.region.ask_metadata", ask)
    assert region_from_metadata() is None
    assert sum(patience) <= 1
    tries = len(patience)
    assert region_from_metadata() is None
    assert len(patience) == tries
