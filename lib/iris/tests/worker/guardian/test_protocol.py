import pytest

from iris.worker.guardian.held import common_from, fields_of, fields_of_common, spec_from
from iris.worker.guardian.protocol import MAX_FRAME_BYTES, JsonFrameReader, ProtocolError, agree, encode
from iris.worker.isolation.plan import Mount
from iris.worker.processes import CommonSpec, ProcessSpec


def test_messages_come_whole_however_they_are_cut() -> None:
    messages = [{"do": [["stop", "/a/b/0:0", 5, None]]}, {"hello": {"text": "grün \udc80"}}, {}]
    data = b"".join(map(encode, messages))
    for step in (1, 2, 7, len(data)):
        reader = JsonFrameReader()
        pieces = [data[start : start + step] for start in range(0, len(data), step)]
        assert [message for piece in pieces for message in reader.feed(piece)] == messages


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n", "a frame of 1195725856 bytes; at most 65536 are allowed"),
        (b"\0\0\0\3{{{", "a frame that is not JSON"),
        (b"\0\0\0\2[]", "a frame that is not a JSON object"),
        (b"\0\0\0\2\xff\xff", "a frame that is not JSON"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        list(JsonFrameReader().feed(data))


def test_a_deeply_nested_frame_is_refused() -> None:
    body = b"[" * 60_000
    with pytest.raises(ProtocolError, match="not JSON"):
        list(JsonFrameReader(MAX_FRAME_BYTES).feed(len(body).to_bytes(4, "big") + body))


@pytest.mark.parametrize(
    ("theirs", "version"),
    [([1, 1], 1), ([1, 2], 2), ([2, 5], 3), ([3, 3], 3), ([1, 9], 3)],
)
def test_the_newest_version_of_both_is_spoken(theirs: list[int], version: int) -> None:
    assert agree(theirs, oldest=1, newest=3) == version


def test_without_a_common_version_both_ranges_are_named() -> None:
    with pytest.raises(ProtocolError, match="it speaks versions 4 to 5 of the protocol, this one 1 to 3"):
        agree([4, 5], oldest=1, newest=3)
    with pytest.raises(ProtocolError, match="versions must be two numbers, not 'two'"):
        agree("two")


def test_a_spec_travels_whole_and_unknown_fields_are_passed_over() -> None:
    mounts = (Mount("/b", "/b", "/l"), Mount("/e", "/e"))
    spec = ProcessSpec(
        "/a/b/0:0", ("echo", "x"), {"A": "\udcff"}, "/", "ann", "/log", 7, 8000, True, {"task": "/a/b/0"}, mounts, 9
    )
    assert spec_from(fields_of(spec) | {"of_the_next_release": 1}) == spec
    assert spec_from(fields_of(ProcessSpec("o", ("true",), {}, "/"))) == ProcessSpec("o", ("true",), {}, "/")


def test_what_is_common_travels_whole_and_is_added_to_what_is_not() -> None:
    common = CommonSpec(("echo", "x"), {"A": "a", "B": "b"}, "ann", 7, 9, 8000, {"job": "/a/b"})
    again = common_from(fields_of_common(common) | {"of_the_next_release": 1})
    assert fields_of_common(again) == fields_of_common(common)
    mounts = (Mount("/b", "/b", "/l"),)
    own = ProcessSpec("/a/b/0:0", (), {"B": "own"}, "/", log="/log", note={"index": 0}, mounts=mounts, common=again)
    assert own.whole() == ProcessSpec(
        "/a/b/0:0", ("echo", "x"), {"A": "a", "B": "own"}, "/", "ann", "/log", 9, 8000, False,
        {"job": "/a/b", "index": 0}, mounts, 7,
    )  # fmt: skip
    with pytest.raises(ValueError, match="argv is empty"):
        common_from({"argv": [], "env": {}})
