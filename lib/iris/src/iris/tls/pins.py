"""The text form of tokens: the token, and the digest of the only certificate authority (CA) to send it to.

A pinned token is `iris-v1.<sha256 of the CA>.<token>`; clients send only `<token>`. A join token is
`iris-join-v1.<id>.<secret>.<sha256 of the CA>`; without TLS the digest is `insecure`.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from rigging.errors import InvalidRequest

_PINNED: Final = re.compile(r"iris-v1\.([0-9a-f]{64})\.(.+)")
_JOIN: Final = re.compile(r"iris-join-v1\.([0-9a-z]{4,32})\.([0-9a-zA-Z_-]{20,128})\.([0-9a-f]{64}|insecure)")
_NO_CA: Final = "insecure"


@dataclass(frozen=True, slots=True)
class PinnedToken:
    """A token, and the SHA-256 (hex) of the only CA to send it to; empty without TLS."""

    token: str = field(repr=False)
    ca_sha256: str = ""

    @property
    def text(self) -> str:
        """Return the text form."""
        return f"iris-v1.{self.ca_sha256}.{self.token}" if self.ca_sha256 else self.token


@dataclass(frozen=True, slots=True)
class JoinTokenText:
    """The parts of a join token.

    Args:
        token_id: Its public id, for the controller and operators.
        secret: Its secret.
        ca_sha256: SHA-256 (hex) of the controller's CA; empty without TLS.
    """

    token_id: str
    secret: str = field(repr=False)
    ca_sha256: str = ""

    @property
    def text(self) -> str:
        """Return the text form."""
        return f"iris-join-v1.{self.token_id}.{self.secret}.{self.ca_sha256 or _NO_CA}"


def parse_token(text: str) -> PinnedToken:
    """Split a token. Text without a pin is a plain token."""
    match = _PINNED.fullmatch(text.strip())
    return PinnedToken(match[2], match[1]) if match else PinnedToken(text.strip())


def parse_join_token(text: str) -> JoinTokenText:
    """Split a join token.

    Raises:
        InvalidRequest: The text is not a join token. The error does not repeat it, because it may be another secret.
    """
    match = _JOIN.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(
            "this is not a join token: expected iris-join-v1.<id>.<secret>.<sha256 of the CA>; "
            "`iris cluster token create` makes one"
        )
    return JoinTokenText(match[1], match[2], "" if match[3] == _NO_CA else match[3])
