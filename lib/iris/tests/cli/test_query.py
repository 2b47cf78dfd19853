"""How answers are shown."""

import csv
import io

import pytest

from iris.cli.query import as_csv, as_records, as_table
from iris.client import QueryResult
from rigging.errors import InvalidRequest

RESULT = QueryResult(
    ("job_id", "error", "n"), (("/ann/a", 'one\ntwo, "three"', 1.5), ("/ann/ä", None, b"\x00\xff")), False
)


def test_a_table_has_one_line_for_each_row() -> None:
    assert as_table(RESULT) == [
        "JOB_ID  ERROR             N",
        '/ann/a  one two, "three"  1.5',
        "/ann/ä  -                 00ff",
    ]


def test_an_empty_answer_still_shows_its_columns() -> None:
    assert as_table(QueryResult(("a", "b"), (), False)) == ["A  B"]
    assert as_records(QueryResult(("a",), (), False)) == []


def test_json_has_an_object_for_each_row() -> None:
    assert as_records(RESULT) == [
        {"job_id": "/ann/a", "error": 'one\ntwo, "three"', "n": 1.5},
        {"job_id": "/ann/ä", "error": None, "n": "00ff"},
    ]


def test_json_does_not_lose_columns_of_one_name() -> None:
    joined = QueryResult(("state", "n", "state"), ((1, 2, 3),), False)
    with pytest.raises(InvalidRequest, match=r"more than one column is named 'state'.*with AS, or take -f csv"):
        as_records(joined)
    assert as_table(joined)[1] == "1      2  3"
    assert as_csv(joined).splitlines()[1] == "1,2,3"


def test_csv_can_be_read_back() -> None:
    assert list(csv.reader(io.StringIO(as_csv(RESULT)))) == [
        ["job_id", "error", "n"], ["/ann/a", 'one\ntwo, "three"', "1.5"], ["/ann/ä", "", "00ff"],
    ]  # fmt: skip
