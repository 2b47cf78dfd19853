"""The regions that have accelerators, as the cluster's workers tell them."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fray.backends.iris.client import IrisBackend
from fray.client import TellsRegions
from iris.client import IrisClient


def backend(*workers: Mapping[str, str], groups: Sequence[SimpleNamespace] = ()) -> IrisBackend:
    class Client:
        def cluster_status(self, *, all_workers: bool = False) -> Any:
            assert all_workers, "those that are away count, too"
            known = [SimpleNamespace(attributes=attributes) for attributes in workers]
            return SimpleNamespace(workers=known, scale_groups=groups)

    return IrisBackend(cast(IrisClient, Client()))


def worker(variant: str, **place: str) -> dict[str, str]:
    return {"device-variant": variant, **place}


@pytest.mark.parametrize(
    ("variants", "regions"),
    [
        (["v5p-8"], ["us-central1", "us-east5"]),
        (["V5P-8", "v6e-4"], ["us-east5"]),
        (["v4-8"], []),
        (["v5p-8", "v4-8"], []),
        ([], []),
    ],
)
def test_regions_that_have_every_variant(variants: list[str], regions: list[str]) -> None:
    cluster = backend(
        worker("v5p-8", region="us-east5"),
        worker("v5p-8", zone="us-central1-a"),
        worker("v5p-8"),
        worker("v6e-4", region="us-east5", zone="us-east5-b"),
        worker("v6e-4", region="europe-west4"),
        {},
    )
    assert isinstance(cluster, TellsRegions)
    assert cluster.accelerator_regions(variants) == regions


def test_slices_that_there_may_be_count_before_any_is_there() -> None:
    groups = [
        SimpleNamespace(attributes=worker("v5p-8", region="us-east5"), max_slices=4),
        SimpleNamespace(attributes=worker("v5p-8", region="us-west4"), max_slices=0),
    ]
    cluster = backend(worker("v5p-8", zone="us-central1-a"), groups=groups)
    assert cluster.accelerator_regions(["v5p-8"]) == ["us-central1", "us-east5"]
