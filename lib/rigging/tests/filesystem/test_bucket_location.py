from collections.abc import Callable
from typing import Any

import pytest

from rigging.errors import NotFound, Unavailable
from rigging.filesystem.bucket_location import BUCKET_LOCATIONS, BucketLocations, get_bucket_location, same_place


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("us-central1", "us-central1", True), ("US-Central1", "us-central1", True),
        ("asia", "australia-southeast1", False), ("us-central1", "us-central2", False), ("us", "us-east5", True),
        ("EU", "europe-west4", True), ("asia", "asia-northeast1", True), ("us", "europe-west4", False),
        ("us", "us", True), ("us", "eu", False), ("nam4", "us-central1", True), ("nam4", "us-west1", False),
        ("eur4", "europe-north1", True), ("asia1", "asia-northeast2", True), ("asia1", "asia-northeast3", False),
        ("us", "nam4", False), ("", "us-central1", False),
    ],
)  # fmt: skip
def test_a_multi_region_is_where_its_regions_are(one: str, other: str, same: bool) -> None:
    assert same_place(one, other) is same
    assert same_place(other, one) is same


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


class TestWhatIsKnown:
    def test_a_name_may_say_it_and_what_was_learned_is_kept_in_lower_case_and_wins(self) -> None:
        known = BucketLocations()
        assert (known.named("marin-us-central2"), known.named("other")) == ("us-central2", None)
        known.learn("b", None)
        assert known.is_known_unknown("b")
        assert not known.is_known_unknown("other")
        assert known.learn("other", {"location": "US-East1"}) == known.named("other") == "us-east1"
        assert known.learn("marin-us-central2", {"location": "EU"}) == known.named("marin-us-central2") == "eu"
        known.forget()
        assert known.named("other") is None
        assert not known.is_known_unknown("b")

    @pytest.mark.parametrize("info", [None, {}, {"location": ""}, {"location": 7}])
    def test_what_was_not_learned(self, info: Any, now: list[float], caplog: pytest.LogCaptureFixture) -> None:
        known = BucketLocations(monotonic=lambda: now[0])
        assert known.learn("other", info, PermissionError("no")) is None
        assert "the location of gs://other is unknown (no): its bytes count as crossing" in caplog.text
        now[0] += 299.9
        assert known.is_known_unknown("other")
        assert not known.is_known_unknown("another")
        now[0] += 0.2
        assert not known.is_known_unknown("other")


class TestAsking:
    @pytest.fixture
    def asked(self) -> list[str]:
        return []

    @pytest.fixture
    def location(self, asked: list[str], now: list[float]) -> Callable[[str], str]:
        def info(bucket: str) -> Any:
            asked.append(bucket)
            if bucket == "missing":
                raise FileNotFoundError(bucket)
            if bucket == "away":
                raise ConnectionError("no network")
            return {"location": "EU"} if bucket == "there" else {}

        return BucketLocations(info, lambda: now[0]).location

    def test_a_path_means_its_bucket(self) -> None:
        BUCKET_LOCATIONS.learn("known-there", {"location": "EU"})
        for path in ("known-there", "gs://known-there", "gs://known-there/a/b", "gcs://known-there/a"):
            assert get_bucket_location(path) == "eu"

    def test_a_missing_bucket_is_told_and_asked_again(self, asked: list[str], location: Callable[[str], str]) -> None:
        for _ in range(2):
            with pytest.raises(NotFound, match="gs://missing: there is no such bucket, or this account may not"):
                location("missing")
        assert asked == ["missing", "missing"]

    def test_where_nothing_answers_it_is_not_asked_again_for_a_while(
        self, asked: list[str], now: list[float], location: Callable[[str], str]
    ) -> None:
        with pytest.raises(Unavailable, match="the location of gs://away cannot be queried: no network") as raised:
            location("away")
        assert isinstance(raised.value.__cause__, ConnectionError)
        with pytest.raises(Unavailable, match="the location of gs://away is not known"):
            location("away")
        assert asked == ["away"]
        now[0] += 301
        with pytest.raises(Unavailable, match="cannot be queried"):
            location("away")
        assert asked == ["away", "away"]

    def test_metadata_without_a_location_is_not_known(self, asked: list[str], location: Callable[[str], str]) -> None:
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"may not read the bucket's metadata \(storage.buckets.get\)"):
                location("hidden")
        assert asked == ["hidden"]
