"""Where a step's job must run, and values that tie an output to one region."""

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from marin.execution import InputName, collect_dependencies_and_version, versioned
from marin.execution.config.regions import RegionConflict, infer_region, warn_of_region_buckets
from rigging.filesystem.bucket_location import BucketLocations

CENTRAL = "gs://marin-us-central2"
WEST = "gs://marin-us-west4"


@dataclass(frozen=True)
class Config:
    inputs: Any = None
    output: str = ""


def bucket_info(bucket: str) -> dict[str, str]:
    if bucket == "no-credentials":
        raise PermissionError(bucket)
    return {"continent": {"location": "US"}, "mine": {"location": "EUROPE-WEST4"}}.get(bucket, {})


def location_of(path: str) -> str:
    return BucketLocations(bucket_info).location(path.split("/")[2])


@pytest.mark.parametrize(
    ("inputs", "output", "region"),
    [
        (["/local", "mirror://x", 3], "/local/out", None),
        ([f"{CENTRAL}/a", {"deep": f"{CENTRAL}/b"}], f"{CENTRAL}/out", "us-central2"),
        ([f"{WEST}/a"], "/local/out", "us-west4"),
        ([], f"{WEST}/out", "us-west4"),
        (["gs://continent/a"], f"{WEST}/out", "us-west4"),
        (["gs://continent/a"], "gs://continent/out", None),
        (["gs://mine/a"], "/local", "europe-west4"),
        (["gs://no-credentials/a"], f"{WEST}/out", "us-west4"),
        (["gs://nobody-knows/a"], f"{WEST}/out", "us-west4"),
    ],
)
def test_the_region_that_paths_agree_on(inputs: Any, output: str, region: str | None) -> None:
    assert infer_region("n", Config(inputs, output), output, location_of) == region


def test_paths_that_do_not_agree_are_named() -> None:
    with pytest.raises(RegionConflict) as caught:
        infer_region("train", Config([f"{CENTRAL}/a", f"{WEST}/b"]), f"{CENTRAL}/out")
    for expected in (
        "step 'train'", f"inputs[0]: {CENTRAL}/a is in us-central2", f"inputs[1]: {WEST}/b is in us-west4",
        f"(output path): {CENTRAL}/out is in us-central2", "mirrored(...)", "regions=[...]",
    ):  # fmt: skip
        assert expected in str(caught.value)


def test_a_versioned_value_of_one_region_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = Config(
        inputs={
            "tied": versioned(f"{CENTRAL}/raw/a"),
            "nested": versioned({"paths": [f"{WEST}/b"]}),
            "hardcoded": InputName.hardcoded(f"{WEST}/c"),
            "free": versioned("raw/a"),
            "not versioned": f"{CENTRAL}/d",
            "other bucket": versioned("gs://public-data/x"),
        }
    )
    with caplog.at_level(logging.WARNING):
        warn_of_region_buckets("train", collect_dependencies_and_version(config).version)
    messages = [record.getMessage() for record in caplog.records]
    tied, nested, hardcoded = messages
    for expected in ("step 'train': field 'inputs.tied'", f"{CENTRAL}/raw/a", "us-central2", "versioned('raw/a')"):
        assert expected in tied
    assert "field 'inputs.nested'" in nested
    assert "field 'inputs.hardcoded'" in hardcoded
