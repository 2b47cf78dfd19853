"""Differences between what made an output and what would make it now, in values, code and words."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from marin.execution.lease.status_words import parse_status, status_path
from marin.execution.record.info import ExecutorStepInfo
from marin.execution.record.provenance import in_words, parse_info, provenance_differences, refuse_differences
from marin.execution.version.differences import Difference
from rigging.errors import Conflict


def now(unversioned: Any = None, source: Any = None) -> ExecutorStepInfo:
    return cast(ExecutorStepInfo, SimpleNamespace(unversioned=unversioned or {}, source=source or {}))


@pytest.mark.parametrize(
    ("content", "info"),
    [
        (None, None), (b"", None), (b"[1]", None), (b'"x"', None), (b'{"a": 1', None), (b"{}", {}),
        (b'{"a": 1}', {"a": 1}),
        (b"[" * 100_000, None),
    ],
)  # fmt: skip
def test_an_info_that_is_none(content: bytes | None, info: Any) -> None:
    assert parse_info(content) == info


def words(there: dict[str, Any], info: ExecutorStepInfo) -> list[str]:
    return [str(found) for found in provenance_differences(there, info)]


def test_what_was_not_recorded_is_not_compared() -> None:
    info = now({"k": 1}, {"f": "source 1"})
    for there in ({}, {"unversioned": None, "source": None}, {"unversioned": "x", "source": 3}, {"source": {}}):
        assert words(there, info) == []
    assert words({"source": {"f": "source 2"}}, now()) == []


def test_values_and_code_that_differ() -> None:
    there = {
        "unversioned": {"k": 10, "gone": 1, "same": [1]},
        "source": {"f": "source 0a1b", "old": "source 99", "N": "3", "same": "source 7"},
    }
    info = now(
        {"k": 99, "new": {"x": 1}, "same": [1]},
        {"f": "source 2c3d", "added": "source 5", "N": "4", "M": "5", "same": "source 7"},
    )
    assert words(there, info) == [
        "k: 10 -> 99",
        'new: {"x": 1} (not there before)',
        "gone: was 1 (not there any more)",
        "source of f: 0a1b -> 2c3d",
        "source of added: 5 (not there before)",
        "N: 3 -> 4",
        "M: 5 (not there before)",
        "source of old: was 99 (not there any more)",
    ]


def test_a_secret_is_compared_as_it_is_written_down() -> None:
    there = {"unversioned": {"api_key": "<redacted>"}}
    found = provenance_differences(there, now({"api_key": "mine"}))
    assert "mine" not in str(found)


def test_differences_in_one_line() -> None:
    assert in_words([]) == ""
    assert in_words([Difference("k", "10", "99"), Difference("j", None, "1")]) == "k: 10 -> 99; j: 1 (not there before)"


def test_outputs_that_were_made_otherwise_are_refused_together() -> None:
    one = [Difference("k", "1", "2")]
    refuse_differences({})
    refuse_differences({"/a": [], "/b": []})
    with pytest.raises(Conflict) as refused:
        refuse_differences({"/a": one, "/b": [], "/c": one})
    lines = str(refused.value).splitlines()
    assert lines[0].startswith("strict: 2 output(s) that are there were made otherwise")
    assert lines[1:3] == ["  /a: k: 1 -> 2", "  /c: k: 1 -> 2"]
    assert lines[3].startswith("Nothing of them has run.")
    for count, more in ((20, False), (21, True)):
        with pytest.raises(Conflict) as refused:
            refuse_differences({f"/{number}": one for number in range(count)})
        assert ("  and 1 more; --explain lists all" in str(refused.value)) is more
        assert str(refused.value).count("k: 1 -> 2") == 20


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (None, None), (b"", None), (b"  \n", None), (b"SUCCESS", "SUCCESS"), (b" FAILED\n", "FAILED"),
        (b'{"status": "RUNNING"}\n{"status": "SUCCESS"}\n', "SUCCESS"), (b'{"status": "RUNNING"}\n{"stat', "RUNNING"),
        (b'{"status": "RUNNING"}\n{"other": 1}\n', "RUNNING"), (b'{"status": "RUNNING"}\n[1]', "RUNNING"), (b"{", None),
        (b'{"status": 5}', "5"), (b"{}\n" + b"[" * 100_000, None),
    ],
)  # fmt: skip
def test_the_word_of_a_status_file(content: bytes | None, status: str | None) -> None:
    assert parse_status(content) == status


def test_a_status_is_beside_its_output() -> None:
    assert status_path("/p/out") == "/p/out/.executor_status"
    assert status_path("gs://b/out") == "gs://b/out/.executor_status"
