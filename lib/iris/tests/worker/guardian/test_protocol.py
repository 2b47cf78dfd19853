import pytest

from iris.worker.guardian.protocol import JsonFrameReader, ProtocolError, encode


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
        (b"\0\0\xea\x60" + b"[" * 60_000, "a frame that is not JSON"),
    ],
    ids=["HTTP", "no JSON", "a list", "no text", "deeply nested"],
)
def test_what_is_no_message_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        list(JsonFrameReader().feed(data))
