"""The charge of each read, decided without a store: bounds, lists of several places, sizes that are not told."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rigging.errors import Denied
from rigging.filesystem.budget import GB, TransferBudget, TransferBudgetExceeded
from rigging.filesystem.guard_reads import ChargedReads, RegionRules, run_sync

PLACES = {"away": "eu", "far": "asia", "here": "us", "near": "us"}


class Store:
    """Files of 100 bytes whose names have a letter; it notes what it is asked."""

    protocol = ("x", "y")

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.size: Any = 100
        self.kind = "file"
        self.fails: dict[str, Exception] = {}

    def _strip_protocol(self, path: str) -> str:
        return path.removeprefix("x://")

    def _note(self, name: str) -> None:
        self.asked.append(name)
        if name in self.fails:
            raise self.fails[name]

    def info(self, path: str) -> dict[str, Any]:
        self._note("info")
        if "none" in path:
            raise FileNotFoundError(path)
        return {"size": self.size, "type": self.kind}

    def sizes(self, paths: list[str]) -> list[Any]:
        self._note("sizes")
        return [self.size for _ in paths]

    def expand_path(self, path: Any, recursive: bool, maxdepth: int | None) -> list[str]:
        self._note("expand_path")
        if "none" in str(path):
            raise FileNotFoundError(path)
        start = self._strip_protocol(path if isinstance(path, str) else path[0]).rstrip("*")
        return [f"{start}/{name}" for name in "abc"[:maxdepth]]

    def cat_file(self, path: str, start: int | None, end: int | None) -> bytes:
        self._note("cat_file")
        return bytes(100)[start:end]

    def cat(self, path: Any, recursive: bool, on_error: str) -> Any:
        self._note("cat")
        paths = [path] if isinstance(path, str) else path
        return {self._strip_protocol(each): bytes(100) for each in paths if "none" not in each}

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, **options: Any) -> list[Any]:
        self._note("cat_ranges")
        return [FileNotFoundError() if "none" in path else bytes(20) for path in paths]

    def get(self, path: Any, target: str, **options: Any) -> str:
        self._note("get")
        return "got"

    def copy(self, path1: Any, path2: Any, **options: Any) -> str:
        self._note("copy")
        return "copied"


RULES = RegionRules(
    here=lambda: "us",
    bytes_cross=lambda location, region: location != region,
    is_paid_for=lambda url, region: url.startswith("x://far"),
    configured_region=lambda protocol, bucket: PLACES.get(bucket),
)


@pytest.fixture
def store() -> Store:
    return Store()


def cost(store: Store, steps: Callable[[ChargedReads], Any], limit: int = 10_000, rules: RegionRules = RULES) -> int:
    budget = TransferBudget(limit)
    run_sync(store, steps(ChargedReads(store, lambda: budget, rules=rules)))  # type: ignore[arg-type]
    return budget.bytes_used


@pytest.mark.parametrize(
    ("start", "end", "wanted", "moved"),
    [
        (None, None, 100, 100), (0, 10, 10, 10), (None, 10, 10, 10), (5, 10, 5, 5), (10, 5, 0, 0), (90, None, 10, 10),
        (-7, None, 7, 7), (-200, None, 100, 100), (0, -10, 90, 90), (-10, -5, 5, 5), (95, 200, 105, 5),
        (200, None, 0, 0),
    ],
)  # fmt: skip
def test_the_cost_of_a_range(store: Store, start: int | None, end: int | None, wanted: int, moved: int) -> None:
    def read(reads: ChargedReads) -> Any:
        return reads.cat_file("x://away/a", start, end)

    assert cost(store, read, wanted) == moved
    needs_size = (start is not None and start < 0) or end is None or end < 0
    assert store.asked == (["info"] if needs_size else []) + ["cat_file"]
    if wanted:
        store.asked.clear()
        with pytest.raises(TransferBudgetExceeded, match="x://away/a"):
            cost(store, read, wanted - 1)
        assert "cat_file" not in store.asked


def test_of_several_places_only_what_comes_from_away_costs(store: Store) -> None:
    paths = ["x://here/a", "x://away/a", "x://far/a", "x://away/b", "x://unknown/c"]
    assert cost(store, lambda reads: reads.cat(paths, False, "raise")) == 300
    assert cost(store, lambda reads: reads.cat_ranges(paths, 0, 20)) == 60
    assert cost(store, lambda reads: reads.cat_ranges(paths, [0, 10, 0, 15, 1], [20] * 5), 10 + 5 + 19) <= 60
    assert cost(store, lambda reads: reads.get(paths, "/t")) == 300
    with pytest.raises(TransferBudgetExceeded, match="x://away/a and 2 more"):
        cost(store, lambda reads: reads.get(paths, "/t"), 299)
    store.asked.clear()
    for path in (["x://here/a", "x://near/b"], "x://here/a"):
        assert cost(store, lambda reads, path=path: reads.get(path, "/t")) == 0
        assert cost(store, lambda reads, path=path: reads.cat(path, True, "raise")) == 0
    assert set(store.asked) == {"get", "cat"}, "what is free needs no sizes"


def test_outside_of_any_region_nothing_is_asked_and_nothing_costs(store: Store) -> None:
    nowhere = replace(RULES, here=lambda: None)
    assert cost(store, lambda reads: reads.cat("x://away/*", True), rules=nowhere) == 0
    assert cost(store, lambda reads: reads.cat_file("x://away/a"), rules=nowhere) == 0
    assert cost(store, lambda reads: reads.copy("x://away/a", "x://here/a"), rules=nowhere) == 0
    assert store.asked == ["cat", "cat_file", "copy"]


def test_patterns_and_directories_cost_what_they_stand_for(store: Store) -> None:
    assert cost(store, lambda reads: reads.get("x://away/d", "/t", recursive=True)) == 300
    assert cost(store, lambda reads: reads.get("x://away/d", "/t", recursive=True, maxdepth=2)) == 200
    assert cost(store, lambda reads: reads.get("x://away/d/*", "/t")) == 300
    assert cost(store, lambda reads: reads.copy("x://away/d", "x://here/d", recursive=True, maxdepth=2)) == 200
    store.asked.clear()
    assert cost(store, lambda reads: reads.get("x://away/d", "/t")) == 100
    assert "expand_path" not in store.asked
    assert cost(store, lambda reads: reads.get("x://aw*/d", "/t")) == 300, "its place is in the pattern"


@pytest.mark.parametrize("on_error", ["omit", "return"])
def test_what_is_missing_costs_nothing_where_that_is_no_error(store: Store, on_error: str) -> None:
    paths = ["x://away/a", "x://away/none"]
    assert cost(store, lambda reads: reads.cat(paths, False, on_error)) == 100
    assert cost(store, lambda reads: reads.cat("x://away/none*", False, on_error)) == 0
    with pytest.raises(FileNotFoundError):
        cost(store, lambda reads: reads.cat("x://away/none*", False, "raise"))
    with pytest.raises(FileNotFoundError):
        cost(store, lambda reads: reads.cat("x://away/none", False, "raise"))
    assert cost(store, lambda reads: reads.cat_ranges(paths, 0, 20)) == 20


@pytest.mark.parametrize("error", [FileNotFoundError("none"), TimeoutError("slow"), ValueError("odd")])
@pytest.mark.parametrize(("paths", "call"), [(["x://away/a", "x://away/b"], "sizes"), (["x://away/a"], "info")])
def test_without_sizes_there_is_no_read(store: Store, paths: list[str], call: str, error: Exception) -> None:
    store.fails = {call: error}
    expected = type(error) if isinstance(error, FileNotFoundError) else Denied
    with pytest.raises(expected) as refused:
        cost(store, lambda reads: reads.get(paths, "/t"))
    assert store.asked == [call]
    if expected is Denied:
        label = "x://away/a and 1 more" if len(paths) == 2 else "x://away/a"
        assert str(refused.value).startswith(
            f"{label}: cannot read it: it is in another region and its size is unknown"
        )
        assert repr(error) in str(refused.value)


@pytest.mark.parametrize("size", [None, -1, "100", 1.5])
def test_a_size_that_is_none_is_refused_unless_it_is_a_directorys(store: Store, size: Any) -> None:
    store.size = size
    with pytest.raises(Denied, match=r"its size is unknown \(the store says"):
        cost(store, lambda reads: reads.get("x://away/a", "/t"))
    store.kind = "directory"
    assert cost(store, lambda reads: reads.get("x://away/a", "/t")) == 0


def test_sizes_not_told_together_are_asked_for_one_by_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "sizes", lambda paths: [100, None])
    assert cost(store, lambda reads: reads.get(["x://away/a", "x://away/b"], "/t")) == 200
    assert store.asked == ["info", "info", "get"]


@pytest.mark.parametrize(
    ("source", "target", "moved"),
    [
        ("x://away/a", "x://away/b", 0),
        ("x://here/a", "x://near/b", 0),
        ("x://away/a", "x://here/b", 100),
        ("x://here/a", "x://away/b", 100),
        ("x://here/a", "x://unknown/b", 100),
        ("x://far/a", "x://here/b", 0),
        (["x://here/a", "x://away/b"], "x://here/d", 200),
        (["x://here/a", "x://near/b"], ["x://near/a", "x://near/b"], 0),
    ],
)
def test_a_copy_costs_what_crosses_between_its_places(store: Store, source: Any, target: Any, moved: int) -> None:
    assert cost(store, lambda reads: reads.copy(source, target)) == moved
    assert store.asked[-1] == "copy"


def test_an_error_without_a_path_gets_it_and_the_budget_is_given_back(store: Store) -> None:
    store.fails = {"cat_file": OSError(5, "Forbidden")}
    budget = TransferBudget(GB)
    with pytest.raises(OSError, match=r"Forbidden.*x://away/a"):
        run_sync(store, ChargedReads(store, lambda: budget, rules=RULES).cat_file("away/a", 0, 10))  # type: ignore[arg-type]
    assert budget.bytes_used == 0
    assert budget.bytes_left == GB
