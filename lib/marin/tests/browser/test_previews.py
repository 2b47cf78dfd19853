"""What a preview shows of files that are not quite what their names say."""

import datetime
import gzip
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from marin.browser.confined import Confined
from marin.browser.previews.make import MOST_SHOWN, PART_BYTES, make_preview
from marin.browser.previews.preview import Kind, Preview, is_text, whole_characters
from rigging.errors import InvalidRequest


def _preview(root: Path, name: str, content: bytes, start: int = 0) -> Preview:
    (root / name).write_bytes(content)
    place = Confined(str(root))
    return make_preview(place, place.entry(name), start)


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", True),
        ("żółw 汉字\n".encode(), True),
        (b"caf\xe9 au lait\n" * 9, True),
        (b"one damaged \xff byte in a long line of text\n", True),
        (b"\x1b[31mred\x1b[0m\r\n\t\x08", True),
        (b"text with a NUL\0", False),
        ("text".encode("utf-16"), False),
        (bytes(range(1, 256)) * 4, False),
        (gzip.compress(bytes(range(256)) * 9), False),
        (b"\x01\x02\x03", False),
    ],
)
def test_text_is_told_from_bytes(content: bytes, expected: bool) -> None:
    assert is_text(content) is expected


@given(st.text(max_size=30), st.integers(0, 40))
def test_only_the_beginning_of_a_character_is_cut(text: str, end: int) -> None:
    content = text.encode()[:end]
    whole = whole_characters(content)
    assert content.startswith(whole)
    assert whole.decode() == content.decode("utf-8", "ignore")


def test_times_that_python_does_not_have_are_shown_beside_the_other_columns(tmp_path: Path) -> None:
    table = pyarrow.table(
        {
            "id": [1, 2],
            "day": pyarrow.array([2**60 - 2**60 % 86_400_000, None], pyarrow.date64()),
            "far": pyarrow.array([2**62, 0], pyarrow.timestamp("us")),
            "zone": pyarrow.array([0, 0], pyarrow.timestamp("us", tz="Mars/Olympus")),
            "nested": pyarrow.array([[2**62], None], pyarrow.list_(pyarrow.timestamp("us"))),
            "usual": [datetime.datetime(2020, 1, 2, 3, 4, 5), None],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    place = Confined(str(tmp_path))
    found = make_preview(place, place.entry("a.parquet"), 0)
    assert [row[0] for row in found.rows] == ["1", "2"]
    assert found.rows[1][1] == ""
    assert found.rows[0][3].startswith("1970-01-01 00:00:00")
    assert found.rows[0][5] == "2020-01-02 03:04:05.000000"


@pytest.mark.parametrize("shape", [(4, 5), (40, 3), (3, 30), (2, 3, 4), (7,)])
def test_an_array_in_the_order_of_columns_is_shown_by_rows(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = numpy.arange(float(numpy.prod(shape))).reshape(shape)
    found = _preview(tmp_path, "f.npy", _npy(numpy.asfortranarray(array)))
    flat = array.reshape(shape[0], -1, order="F")
    expected = [[str(number), *(f"{value:.6g}" for value in row[:16])] for number, row in enumerate(flat[:24])]
    assert found.rows == expected
    assert len(found.columns) == len(expected[0])


def test_what_is_too_long_or_too_large_is_shown_in_parts_or_as_bytes(tmp_path: Path) -> None:
    content = ("x" + "é" * PART_BYTES).encode()
    first = _preview(tmp_path, "a.txt", content)
    assert first.after is not None
    second = _preview(tmp_path, "a.txt", content, first.after)
    text = first.text + second.text
    assert "\\x" not in text, "a long line is cut between characters"
    assert text.encode() == content[: len(text.encode())]
    place = Confined(str(tmp_path))
    for name in ("page.html", "picture.png"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"<p>the beginning</p>\n")
            file.truncate(MOST_SHOWN + 1)
        assert make_preview(place, place.entry(name), 0).kind is Kind.BINARY


def test_what_is_no_text_in_a_text_is_written_out_and_hides_nothing_else(tmp_path: Path) -> None:
    assert _preview(tmp_path, "a.txt", b"before \xff after\n").text == "before \\xff after\n"
    found = _preview(tmp_path, "a.jsonl", b'{"a": 1}\n\xff\xfe\n{"a": 3}\n')
    assert found.kind is Kind.JSON_LINES
    assert [row[1] for row in found.rows] == ['{\n "a": 1\n}', "\\xff\\xfe", '{\n "a": 3\n}']
    assert "1 of these lines are not valid JSON" in found.note
    for name in ("b.jsonl", "b.txt", "b"):
        assert _preview(tmp_path, name, b"") == Preview(Kind.TEXT), "empty is empty, whatever its name"


@pytest.mark.process
def test_no_kind_of_time_loads_pandas(tmp_path: Path) -> None:
    stamp, duration = (pyarrow.array([1], kind("ns")) for kind in (pyarrow.timestamp, pyarrow.duration))
    parquet.write_table(pyarrow.table({"t": stamp, "d": duration}), tmp_path / "a.parquet")
    script = (
        "import sys\n"
        "from marin.browser.confined import Confined\n"
        "from marin.browser.previews.make import make_preview\n"
        f"place = Confined({str(tmp_path)!r})\n"
        "print(make_preview(place, place.entry('a.parquet'), 0).rows, 'pandas' in sys.modules)\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told == "[['1970-01-01 00:00:00.000000001', '1']] False\n"


def test_arrays_that_are_cut_or_scalars_or_damaged_say_so(tmp_path: Path) -> None:
    content = _npy(numpy.asfortranarray(numpy.arange(20).reshape(4, 5)))
    assert "the file is cut" in _preview(tmp_path, "f.npy", content[:-8]).note
    found = _preview(tmp_path, "s.npy", _npy(numpy.float64(3)))
    assert (found.rows, found.note) == ([["0", "3"]], ""), "it is not said to be a part"
    content = _npy(numpy.arange(3)).replace(b"(3,), } ", b"(-3,), }", 1)
    with pytest.raises(InvalidRequest, match="a length below 0"):
        _preview(tmp_path, "n.npy", content)
