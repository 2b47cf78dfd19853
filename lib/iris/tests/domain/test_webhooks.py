import ipaddress

import pytest

from iris.domain.webhooks import Webhook, parse_webhook, refusal, shown
from rigging.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "webhook"),
    [
        ("https://hooks.example.com", Webhook("https", "hooks.example.com", 443, "/")),
        ("http://h:8080/a/b?c=d", Webhook("http", "h", 8080, "/a/b?c=d")),
        ("https://ann:pw@[::1]:9/x", Webhook("https", "::1", 9, "/x", "ann:pw")),
    ],
)
def test_the_parts_of_an_address(url: str, webhook: Webhook) -> None:
    assert parse_webhook(url) == webhook


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "must be http://HOST/... or https://HOST/..."),
        ("ftp://h/secret", "begins with 'ftp'; it must be http"),
        ("file:///etc/passwd", "begins with 'file'"),
        ("http:///secret", "must be http://HOST"),
        ("http://h:port/secret", "cannot be read"),
        ("http://h/a b", "contains a space, a control character"),
        ("http://h/a\r\nX-Evil: 1", "contains a space, a control character"),
        ("http://h/" + "x" * 3000, "3,009 characters; at most 2,048 are allowed"),
    ],
)
def test_what_is_none_is_refused_without_showing_it(url: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_webhook(url)
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", ""),
        ("https://hooks.example.com", "https://hooks.example.com"),
        ("https://hooks.example.com/T0/B1/key", "https://hooks.example.com/..."),
        ("http://ann:pw@h:8080/?key=1", "http://h:8080/..."),
        ("https://ann:pw@h", "https://h"),
        ("no address", "..."),
    ],
)
def test_what_is_shown_has_neither_path_nor_credentials(url: str, text: str) -> None:
    assert shown(url) == text


@pytest.mark.parametrize(
    ("address", "allow", "is_private", "refused"),
    [
        ("8.8.8.8", (), False, False),
        ("127.0.0.1", (), False, True),
        ("169.254.169.254", (), False, True),
        ("10.1.2.3", (), False, True),
        ("::1", (), False, True),
        ("fe80::1", (), False, True),
        ("::ffff:127.0.0.1", (), False, True),
        *((f"::ffff:{inner}", (), False, True) for inner in ("10.1.2.3", "169.254.169.254")),
        ("::ffff:8.8.8.8", (), False, False),
        ("64:ff9b::10.1.2.3", (), False, True),
        ("64:ff9b::8.8.8.8", (), False, False),
        ("64:ff9b:1::8.8.8.8", (), False, True),
        ("2002:7f00:1::1", (), False, True),
        ("2002:a9fe:a9fe:1::1", (), False, True),
        ("2002:808:808::1", (), False, False),
        ("::127.0.0.1", (), False, True),
        ("2001:4860:4860::8888", (), False, False),
        ("224.0.0.1", (), False, True),
        ("127.0.0.1", (), True, False),
        ("10.1.2.3", ("10.0.0.0/8",), False, False),
        ("10.1.2.3", ("hooks.example.com",), False, False),
        ("10.1.2.3", ("*.example.com",), False, False),
        ("8.8.8.8", ("other.example.com", "::/0"), False, True),
        ("127.0.0.1", ("other.example.com",), True, True),
    ],
)
def test_whom_a_controller_may_speak_to(address: str, allow: tuple[str, ...], is_private: bool, refused: bool) -> None:
    webhook = parse_webhook("https://Hooks.Example.com/key")
    reason = refusal(webhook, ipaddress.ip_address(address), allow, is_private=is_private)
    assert bool(reason) == refused
    assert "key" not in reason
    if refused:
        assert "notify" in reason, "the operator reads what to change"
