"""rigging.filesystem as data and training libraries call it."""

import dataclasses
from pathlib import Path

import fsspec
import pytest

from rigging.filesystem import (
    ALLOWED_TTL_DAYS,
    MARIN_MIRROR_BUDGET_ENV,
    TEMP_PATH_PREFIX,
    CrossRegionGuardedFS,
    MirrorFileSystem,
    TransferBudget,
    TransferBudgetExceeded,
    check_gcs_paths_same_region,
    collect_gcs_paths,
    filesystem,
    marin_temp_bucket,
    mirror_budget,
    record_transfer,
    reset_mirror_budget,
    set_mirror_budget,
)

GB = 1024**3


@dataclasses.dataclass
class Data:
    cache_dir: str
    train_urls: list[str]
    files: tuple


CONFIG = {
    "data": Data("gs://marin-us-central2/cache", ["gs://elsewhere/shard-1"], ("a", Path("gs://marin-eu-west4/x"))),
    "out": "/local",
}


@pytest.mark.compatible("record_transfer(size, url, *, budget?)", since="0.1.0")
def test_a_trainer_charges_each_checkpoint(in_us_central2, gcs_server, monkeypatch, tmp_path):
    budget = TransferBudget(limit_bytes=100)
    for free in (str(tmp_path), f"file://{tmp_path}", "gs://old-us-central2/ckpt", "gs://no-such-bucket/ckpt"):
        record_transfer(1000, free, budget=budget)
    assert budget.bytes_used == 0
    record_transfer(60, "gs://old-eu-west4/ckpt", budget=budget)
    assert budget.bytes_used == 60
    with pytest.raises(TransferBudgetExceeded):
        record_transfer(60, "gs://old-eu-west4/ckpt", budget=budget)
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", "me")
    record_transfer(1000, "gs://old-eu-west4/ckpt", budget=budget)
    assert budget.bytes_used == 60


@pytest.mark.compatible("record_transfer(size, url), where this machine's region is not known", since="0.1.0")
def test_nothing_is_charged_where_the_region_is_not_known(prefix, gcs_server):
    budget = TransferBudget(limit_bytes=100)
    record_transfer(1000, "gs://old-eu-west4/ckpt", budget=budget)
    assert budget.bytes_used == 0


@pytest.mark.compatible("record_transfer(0 or less, url): nothing is charged", since="0.1.0")
def test_a_transfer_of_nothing_is_free(in_us_central2, gcs_server):
    budget = TransferBudget(0)
    with pytest.raises(TransferBudgetExceeded):
        record_transfer(1, "gs://old-eu-west4/ckpt", budget=budget)
    for size in (0, -1):
        record_transfer(size, "gs://old-eu-west4/ckpt", budget=budget)
    assert budget.bytes_used == 0


@pytest.mark.compatible("collect_gcs_paths(obj, *, path_prefix?, skip_if_prefix_contains?)", since="0.1.0")
def test_paths_are_collected_under_their_keys():
    assert collect_gcs_paths(CONFIG, skip_if_prefix_contains=("train_urls", "validation_urls")) == [
        ("data.cache_dir", "gs://marin-us-central2/cache"),
        ("data.files[1]", "gs://marin-eu-west4/x"),
    ]
    assert collect_gcs_paths({"a": ["gs://b/c"]}, path_prefix="config") == [("config.a[0]", "gs://b/c")]
    assert collect_gcs_paths(CONFIG, skip_if_prefix_contains=("data",)) == []
    assert ("data.train_urls[0]", "gs://elsewhere/shard-1") in collect_gcs_paths(CONFIG)


@pytest.mark.compatible(
    'check_gcs_paths_same_region(obj, *, local_ok?, region?, skip_if_prefix_contains=("train_urls", "validation_urls"),'
    " region_getter?, path_checker?)",
    since="0.1.0",
)
def test_paths_are_checked_by_the_callers_own_rules():
    checked = []

    def checker(key, path, region, local_ok):
        checked.append((key, path, region, local_ok))

    check_gcs_paths_same_region(CONFIG, local_ok=False, region_getter=lambda: "us-central2", path_checker=checker)
    assert checked == [
        ("data.cache_dir", "gs://marin-us-central2/cache", "us-central2", False),
        ("data.files[1]", "gs://marin-eu-west4/x", "us-central2", False),
    ]
    with pytest.raises(ValueError, match=r"data\.files\[1\]"):
        check_gcs_paths_same_region(CONFIG, local_ok=True, region="us-central2")
    check_gcs_paths_same_region(
        CONFIG, local_ok=False, region="us-central2", skip_if_prefix_contains=("train_urls", "files")
    )
    check_gcs_paths_same_region({"a": "gs://marin-us-central2/x", "b": "/local"}, region="us-central2")
    both = {name: [f"gs://anywhere/{name}"] for name in ("train_urls", "validation_urls")}
    check_gcs_paths_same_region(both, local_ok=False, region="us-central2", path_checker=checker)
    assert len(checked) == 2, "what is only read may lie anywhere"
    check_gcs_paths_same_region(CONFIG, local_ok=True, region_getter=lambda: None)
    with pytest.raises(ValueError, match="region"):
        check_gcs_paths_same_region(CONFIG, local_ok=False, region_getter=lambda: None)


@pytest.mark.compatible("mirror_budget(budget_gb=)", since="0.1.0")
@pytest.mark.compatible("MirrorFileSystem(budget=).bytes_copied", since="0.1.0")
def test_the_mirror_copies_within_its_budget(tmp_path, monkeypatch):
    for region in ("here", "there"):
        (tmp_path / region).mkdir()
    (tmp_path / "there" / "x").write_bytes(b"12345")
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path / "here"))
    monkeypatch.setenv("MARIN_MIRROR_PREFIXES", f"{tmp_path}/here,{tmp_path}/there")
    budget = TransferBudget(limit_bytes=100)
    fs = MirrorFileSystem(budget=budget)
    with fs.open("mirror://x", "rb") as file:
        assert file.read() == b"12345"
    assert fs.bytes_copied == 5
    assert budget.bytes_used == 5
    with mirror_budget(budget_gb=2.5):
        assert MirrorFileSystem().budget.limit_bytes == int(2.5 * GB)


@pytest.mark.compatible("set_mirror_budget(budget_gb), reset_mirror_budget(token)", since="0.1.0")
def test_a_budget_is_set_until_it_is_reset():
    with mirror_budget(budget_gb=1):
        token = set_mirror_budget(3)
        assert MirrorFileSystem().budget.limit_bytes == 3 * GB
        reset_mirror_budget(token)
        assert MirrorFileSystem().budget.limit_bytes == GB


@pytest.mark.compatible("TransferBudget(): the default limit", since="0.1.0")
@pytest.mark.compatible("TransferBudget.record(size=, path=)", since="0.1.0")
@pytest.mark.compatible("MARIN_MIRROR_BUDGET_ENV", since="0.1.0")
def test_a_budget_has_the_default_limit(monkeypatch):
    assert TransferBudget().limit_bytes == 10 * GB
    monkeypatch.setenv(MARIN_MIRROR_BUDGET_ENV, "0.5")
    budget = TransferBudget()
    budget.record(size=100, path="gs://b/x")
    assert (budget.bytes_used, budget.limit_bytes) == (100, GB // 2)


@pytest.mark.compatible("TEMP_PATH_PREFIX, ALLOWED_TTL_DAYS", since="0.1.0")
def test_temporary_places_are_made_of_the_names(in_us_central2):
    assert ALLOWED_TTL_DAYS == (1, 2, 3, 4, 5, 6, 7, 14, 30)
    for days in ALLOWED_TTL_DAYS:
        assert marin_temp_bucket(days, "x") == f"gs://marin-us-central2/{TEMP_PATH_PREFIX}/ttl={days}d/x"


@pytest.mark.compatible("CrossRegionGuardedFS(fs, *, cross_region_checker?, budget?)", since="0.1.0")
def test_a_guard_asks_the_callers_own_checker(gcs_server, tmp_path):
    fs = filesystem("gs").unguarded
    name = tmp_path.name
    fs.pipe({f"old-us-central2/{name}": b"x" * 30, f"old-eu-west4/{name}": b"y" * 40})
    asked = []

    def checker(bucket):
        asked.append(bucket)
        return bucket == "old-eu-west4"

    budget = TransferBudget(limit_bytes=50)
    guarded = CrossRegionGuardedFS(fs, cross_region_checker=checker, budget=budget)
    assert guarded.cat_file(f"old-us-central2/{name}") == b"x" * 30
    assert budget.bytes_used == 0
    assert guarded.cat_file(f"old-eu-west4/{name}") == b"y" * 40
    assert budget.bytes_used == 40
    with pytest.raises(TransferBudgetExceeded):
        guarded.cat_file(f"old-eu-west4/{name}")
    assert set(asked) == {"old-us-central2", "old-eu-west4"}
    nothing = CrossRegionGuardedFS(fs, cross_region_checker=lambda bucket: False)
    assert nothing.cat_file(f"old-eu-west4/{name}") == b"y" * 40


@pytest.mark.compatible("CrossRegionGuardedFS(any fsspec filesystem, cross_region_checker=)", since="0.1.0")
def test_a_guard_is_tried_without_a_bucket(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"x" * 30)
    budget = TransferBudget(limit_bytes=50)
    guarded = CrossRegionGuardedFS(fsspec.filesystem("file"), cross_region_checker=lambda _: True, budget=budget)
    with guarded.open(f"{tmp_path}/file", "rb") as file:
        assert len(file.read()) == 30
    assert budget.bytes_used == 30
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", "me")
    assert len(guarded.cat_file(f"{tmp_path}/file")) == 30
    assert budget.bytes_used == 30
