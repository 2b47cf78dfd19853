import pytest

from rigging.filesystem import region_check
from rigging.filesystem.region_check import bytes_cross, configured_region, is_paid_for


@pytest.mark.parametrize(
    ("location", "region", "cross"),
    [("us-east1", "us-east1", False), ("us", "us-east1", False), ("eu", "us-east1", True), (None, "x", True)],
)
def test_bytes_cross_unless_both_are_known_to_be_in_one_place(location: str | None, region: str, cross: bool) -> None:
    assert bytes_cross(location, region) is cross


def test_who_pays_is_logged_once_a_place(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", raising=False)
    assert not is_paid_for("gs://b", "us")
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", "  ")
    assert not is_paid_for("gs://b", "us")
    assert caplog.records == []
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", " ann, who is told of once ")
    for what, region in (("gs://b", "us"), ("gs://b", "us"), ("gs://c", "us"), ("gs://b", "eu")):
        assert is_paid_for(what, region)
    assert [record.getMessage() for record in caplog.records] == [
        f"reading {what} from {region} across regions without a budget: ann, who is told of once pays all fees"
        for what, region in (("gs://b", "us"), ("gs://c", "us"), ("gs://b", "eu"))
    ]
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", "bob")
    is_paid_for("gs://b", "us")
    assert "bob pays" in caplog.text


def test_the_table_of_prefixes_says_where_other_stores_buckets_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "mirror.yaml"
    table.write_text("prefixes:\n  us-east-1: s3://one/a\n  eu-west-1: s3://two\n")
    monkeypatch.setenv("MARIN_MIRROR_CONFIG", str(table))
    monkeypatch.setenv("MARIN_PREFIX", "s3://here/x")
    monkeypatch.setattr(region_check, "marin_region", lambda: "where-this-is")
    assert configured_region("s3", "one") == "us-east-1"
    assert configured_region("s3", "two") == "eu-west-1"
    assert configured_region("s3", "here") == "where-this-is"
    assert configured_region("s3", "three") is None
    assert configured_region("gs", "one") is None
