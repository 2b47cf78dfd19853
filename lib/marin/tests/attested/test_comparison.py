"""Comparison of files by what they hold."""

import gzip
import io
import json
from typing import Any

import numpy
import pyarrow
import pytest
from pyarrow import parquet

from marin.attested.comparison import compare


def js(value: Any) -> bytes:
    return json.dumps(value).encode()


def npy(value: Any, dtype: str = "float64") -> bytes:
    file = io.BytesIO()
    numpy.save(file, numpy.array(value, dtype=dtype))
    return file.getvalue()


def npz(**values: Any) -> bytes:
    file = io.BytesIO()
    numpy.savez(file, **values)
    return file.getvalue()


def table(**columns: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


NAN = float("nan")

EQUAL: list[tuple[str, bytes, bytes, float]] = [
    ("a.json", js({"a": 1, "b": [1.0]}), b'{"b": [1], "a": 1.0}', 0),
    ("a.json", js([NAN, float("inf"), 10**400]), js([NAN, float("inf"), 10**400]), 0),
    ("a.json", js([100.0, 0.001]), js([101.0, 0.009]), 0.01),
    (".artifact", js({"loss": 1.0}), js({"loss": 1.005}), 0.01),
    ("a.jsonl", b'{"a": 1}\n{"a": 2}\n', b'{"a":1}\n{"a":2.01}\n', 0.01),
    ("a.jsonl.gz", gzip.compress(b"1\n", mtime=1), gzip.compress(b"1\n", mtime=2), 0),
    ("a.csv", b"step,loss\n1,0.5\n", b"step,loss\n1,0.502\n", 0.01),
    ("a.npy", npy([1.0, NAN]), npy([1.001, NAN]), 0.01),
    ("a.npy", npy([200], "uint8"), npy([201], "uint8"), 0.01),
    ("a.npz", npz(a=[1.0], b=["x"]), npz(b=["x"], a=[1.001]), 0.01),
    ("a.parquet", table(a=[1.0, 2.0]), table(a=[1.0, 2.001]), 0.01),
]

DIFFERENT: list[tuple[str, bytes, bytes, float, list[str]]] = [
    ("a.json", js({"a": {"b": [1, 2]}}), js({"a": {"b": [1, 3]}}), 0.1, ["a.b[1]: 2 -> 3"]),
    ("a.json", js({"a": 1}), js({"b": 1}), 9, ["a: 1 -> missing", "b: missing -> 1"]),
    ("a.json", js([1]), js([1, 2]), 9, ["value: 1 -> 2 items"]),
    ("a.json", js([True, 1, None]), js([1, "1", 0]), 9, ["[0]: true -> 1", '[1]: 1 -> "1"', "[2]: null -> 0"]),
    ("a.json", js([1.0, 10**400]), js([float("inf"), 10**401]), 0.5, ["[0]: 1.0 -> Infinity", "[1]: 1000"]),
    ("a.json", js([1, 2, 3, 4, 5]), js([0] * 5), 0, ["[0]: 1 -> 0", "[1]: 2 -> 0", "[2]: 3 -> 0", "and more"]),
    ("a.json", js("x"), b'"y', 0, ["line 1: ", "not compared by value: JSONDecodeError: "]),
    ("a.jsonl", b'{"a": 1}\n{"a": 2}\n', b'{"a": 1}\n{"a": 3}\n', 0, ["line 2, a: 2 -> 3"]),
    ("a.jsonl", b"1\n", b"1\n2\n", 0, ['line 2: missing -> "2"']),
    ("a.csv", b"step,loss\n1,0.5\n", b"step,loss\n1,0.6\n", 0.01, ['line 2, loss: "0.5" -> "0.6"']),
    ("a.csv", b"a\nx\n", b"a\ny\nz\n", 9, ['line 2, a: "x" -> "y"', 'line 3: missing -> "z"']),
    ("a.npy", npy([[1, 2], [3, 4]]), npy([[1, 9], [3, 9]]), 0.1, ["[0, 1]: 2.0 -> 9.0; 2 of 4 differ"]),
    ("a.npy", npy([1]), npy([1], "float32"), 9, ["array: float64 (1,) -> float32 (1,)"]),
    ("a.npz", npz(a=[1], b=[1]), npz(a=[2], c=[1]), 0, ["a[0]: 1 -> 2", "b: only before", "c: only after"]),
    ("a.parquet", table(a=[1], b=["x"]), table(a=[2], b=["y"]), 0, ["a[0]: 1 -> 2", 'b[0]: "x" -> "y"']),
    ("a.parquet", table(a=[1]), table(a=[1.0]), 9, ['schema.a: "int64" -> "double"']),
    ("a.parquet", b"PAR", b"PAR1", 0, ['line 1: "PAR" -> "PAR1"', "not compared by value: Arrow"]),
    ("a.txt", b"one\ntwo\n", b"one\n2\n", 9, ['line 2: "two\\n" -> "2\\n"']),
    ("a.bin", b"\xff\x00" * 50, b"\xff\x00" * 20 + b"x", 9, ["byte 40 (100 -> 41 bytes)"]),
    ("a.json.gz", b"none", b"other", 0, ['line 1: "none" -> "other"']),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "after", "tolerance"), EQUAL)
def test_equal_values_are_equal_however_they_are_written(
    name: str, before: bytes, after: bytes, tolerance: float
) -> None:
    assert compare(name, before, after, tolerance) == []
    assert compare(name, after, before, tolerance) == []


@pytest.mark.parametrize(("name", "before", "after", "tolerance", "where"), DIFFERENT)
def test_a_difference_is_told_with_its_place_and_both_values(
    name: str, before: bytes, after: bytes, tolerance: float, where: list[str]
) -> None:
    found = compare(name, before, after, tolerance)
    assert len(found) == len(where)
    assert all(line.startswith(start) for line, start in zip(found, where, strict=True)), found
