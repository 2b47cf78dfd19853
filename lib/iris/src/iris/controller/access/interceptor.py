"""The single server interceptor: authentication, authorization, and error mapping.

The metadata of a call identifies the caller, who is checked before the message is read. The handler of a refused call
reads nothing, so only the connection's flow-control window has arrived.
"""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from iris.controller.access.authority import AUDITED, Rule, as_attempt, authorize_all, check_caller, rule_of
from iris.controller.access.open_calls import OpenCalls
from iris.controller.access.user_tokens import UserTokens, id_of
from iris.controller.dashboard.figures import Figures
from iris.domain.events import Caller, Requested
from iris.rpc.auth import Principal, PrincipalKind, Unauthenticated, is_kept, verify_token
from iris.rpc.protocol import (
    ATTEMPT_ID_KEY,
    AUTHORIZATION_KEY,
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_KEY,
    version_mismatch,
)
from iris.rpc.status_map import to_status
from rigging.errors import Conflict, InvalidRequest, MarinError

logger = logging.getLogger(__name__)

_PRINCIPAL: Final[ContextVar[Principal]] = ContextVar("iris_principal")
_CONTEXT: Final[ContextVar[Any]] = ContextVar("iris_context", default=None)
_MAX_KNOWN_TOKENS: Final = 4096
_DIGITS: Final = 9
_BETWEEN_COMPLAINTS_S: Final = 60.0
_LASTING: Final = (
    "/iris.v1.WorkerService/",
    "/iris.v1.ClientService/",
    "/iris.v1.DashboardService/",
    "/iris.v1.ExecService/Attach",
)
"""Streams that stay open as long as their callers live, and so do not count as activity."""

_OF_PAGES: Final = "/iris.v1.DashboardService/ControllerFigures"
"""Requests of monitors, which do not count as activity."""

# Messages and contexts are grpc's, which are untyped here.
Context = Any
Handler = Any
Decoder = Callable[[bytes], Any]
Behaviour = Callable[..., AsyncGenerator[Any, None]]
Metadata = Sequence[tuple[str, str]]


def current_principal() -> Principal:
    """Return the authenticated caller of the current RPC. Call it only inside a servicer's method."""
    return _PRINCIPAL.get()


def address_of(peer: str) -> str:
    """Return the address in gRPC's name of a caller ("ipv4:10.0.0.2:53012": "10.0.0.2"; "unix:" is this machine)."""
    kind, _, where = peer.partition(":")
    if kind == "unix":
        return "unix"
    host = where.replace("%5B", "[").replace("%5D", "]").rpartition(":")[0]
    return host.strip("[]")


def current_caller() -> Caller:
    """Return the authenticated caller of the current RPC, and its address, for the history."""
    context = _CONTEXT.get()
    return Caller(_PRINCIPAL.get().name, "" if context is None else address_of(context.peer()))


def serve_for(principal: Principal) -> None:
    """Make `principal` the caller for the rest of this task."""
    _PRINCIPAL.set(principal)


class ServerInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, unused-ignore]
    """Authenticate every call by its bearer token, apply the rule of its method, and map errors.

    Args:
        secret: The cluster's secret, which signs all its tokens.
        on_client_call: Called with True when a call of a user or job begins, and with False when it ends.
        check_live: Raises Denied for the token of an ended job or attempt (`authority.check_live`). Called for each
            call and each message of a stream.
        max_known_tokens: Number of authenticated tokens to cache.
        protocol_version: This controller's protocol version.
        figures: Counts the calls; None for a new counter.
        audit: Called with an action and its caller when a call of `authority.AUDITED` has succeeded.
        verify_kept: Verifies tokens without a signature (`auth.is_kept`) at every call, because they can be revoked.
        users: Checks users' tokens, and ends the calls of revoked ones; None without such tokens.
    """

    def __init__(
        self,
        secret: bytes,
        on_client_call: Callable[[bool], None],
        check_live: Callable[[Principal], None],
        clock: Callable[[], float] = time.monotonic,
        max_known_tokens: int = _MAX_KNOWN_TOKENS,
        verify_kept: Callable[[str], Principal] | None = None,
        users: UserTokens | None = None,
        protocol_version: int = PROTOCOL_VERSION,
        figures: Figures | None = None,
        audit: Callable[[Requested, Caller], None] | None = None,
    ) -> None:
        self._audit = audit
        self._figures = figures or Figures()
        self._protocol_version = protocol_version
        self._verify_kept = verify_kept
        self._secret = secret
        self._users = users
        self._open_calls = OpenCalls()
        if users is not None:
            users.listen(self._open_calls.end)
        self._max_known_tokens = max_known_tokens
        self._on_client_call = on_client_call
        self._check_live = check_live
        self._handlers: dict[str, tuple[Rule, Handler]] = {}
        self._known: dict[str, Principal] = {}
        self._clock = clock
        self._complaints = _Complaints(clock)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], handler_call_details: Any
    ) -> Handler:
        method: str = handler_call_details.method
        try:
            principal = self._authenticate(handler_call_details.invocation_metadata)
            known = self._handlers.get(method)
            if known is None:
                inner = await continuation(handler_call_details)
                if inner is None:
                    return None  # grpc answers UNIMPLEMENTED
                rule = rule_of(method)
                known = self._handlers[method] = (rule, self._wrap(inner, method, rule))
            rule, handler = known
            check_caller(principal, rule)
            self._check_live(principal)
        except MarinError as error:
            return _refusal(error)
        serve_for(principal)  # the call is served in this task
        return handler

    def admit_stream(
        self, method: str, metadata: Metadata, behaviour: Behaviour, parse: Decoder
    ) -> tuple[Decoder, Callable[..., Awaitable[None]]]:
        """Return the decoder and behaviour of a stream outside gRPC, for use in the calling task. Raise MarinError if
        the caller is not authorized.

        Args:
            method: The gRPC name of the method ("/iris.v1.ClientService/Session").
            metadata: The metadata of the call.
            behaviour: The servicer's method.
            parse: Decodes a message.
        """
        principal = self._authenticate(metadata)
        rule = rule_of(method)
        check_caller(principal, rule)
        self._check_live(principal)
        serve_for(principal)
        return self._decoder(method, parse), self._streamed(behaviour, method, rule, None)

    def _authenticate(self, metadata: Any) -> Principal:
        pairs = dict(metadata or ())
        principal = self._principal(pairs.get(AUTHORIZATION_KEY, ""))
        if self._users is not None:
            self._users.check(principal)
        if principal.kind is PrincipalKind.JOB and not principal.attempt_id:
            principal = as_attempt(principal, pairs.get(ATTEMPT_ID_KEY, ""))
        spoken = str(pairs.get(PROTOCOL_VERSION_KEY, ""))
        if spoken:
            number = int(spoken) if spoken.isascii() and spoken.isdigit() and len(spoken) < _DIGITS else 0
            mismatch = version_mismatch("the caller", number, self._protocol_version)
            if mismatch:
                raise Conflict(mismatch)
        return principal

    def _principal(self, authorization: str) -> Principal:
        known = self._known.get(authorization)
        if known is not None:
            return known
        if not authorization:
            raise Unauthenticated("no token: send metadata 'authorization: Bearer <token>'")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and not token.strip():  # so our own clients speak that were given none
            raise Unauthenticated("no token was shown; name the file of yours by --token-file or IRIS_TOKEN_FILE")
        if scheme.lower() != "bearer":
            raise Unauthenticated("the authorization metadata must read 'Bearer <token>'")
        if self._verify_kept is not None and is_kept(token):
            return self._verify_kept(token)
        principal = verify_token(self._secret, token)
        if len(self._known) >= self._max_known_tokens:
            self._known.clear()
        self._known[authorization] = principal
        return principal

    def _wrap(self, inner: Handler, method: str, rule: Rule) -> Handler:
        decode = self._decoder(method, inner.request_deserializer)
        answers = {"response_serializer": inner.response_serializer}
        # A stream's messages are decoded as its servicer takes them, so that its errors go through `serve`.
        if inner.request_streaming and inner.response_streaming:
            serve = self._streamed(inner.stream_stream, method, rule, None)
            return grpc.stream_stream_rpc_method_handler(serve, request_deserializer=decode, **answers)
        if inner.request_streaming:
            serve = self._single(inner.stream_unary, method, rule, None)
            return grpc.stream_unary_rpc_method_handler(serve, request_deserializer=decode, **answers)
        if inner.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._streamed(inner.unary_stream, method, rule, decode), **answers
            )
        return grpc.unary_unary_rpc_method_handler(self._single(inner.unary_unary, method, rule, decode), **answers)

    def _decoder(self, method: str, parse: Decoder) -> Decoder:
        def decode(data: bytes) -> Any:
            try:
                return parse(data)
            except DecodeError:
                self._complaints.complain(f"{current_principal()} sent a message of {method} that cannot be decoded")
                text = f"a message of {method} cannot be decoded: use the same release of iris on both sides"
                raise InvalidRequest(text) from None

        return decode

    @contextmanager
    def _counted(self, method: str, is_watched: bool) -> Iterator[None]:
        """Context manager: count a call, and notify `on_client_call` of a client's call."""
        if is_watched:
            self._on_client_call(True)
        began, failed = self._clock(), True
        try:
            yield
            failed = False
        finally:
            self._figures.called(method, self._clock() - began, failed=failed)
            if is_watched:
                self._on_client_call(False)

    @contextmanager
    def _revocable(self, principal: Principal) -> Iterator[None]:
        """Context manager: raise Unauthenticated inside once the caller's token is revoked."""
        if self._users is None or principal.kind is not PrincipalKind.USER:
            yield
            return
        self._users.check(principal)
        with self._open_calls.under(id_of(principal)):
            yield

    def _single(
        self, behaviour: Callable[..., Awaitable[Any]], method: str, rule: Rule, decode: Decoder | None
    ) -> Callable[..., Awaitable[Any]]:
        watched = not method.startswith("/iris.v1.WorkerService/") and method != _OF_PAGES
        audited = None if self._audit is None else AUDITED.get(method.rpartition(".")[2])

        async def serve(request: Any, context: Context) -> Any:
            _CONTEXT.set(context)
            try:
                decoded = _checked(request, rule, decode)
                with self._counted(method, watched), self._revocable(current_principal()):
                    answer = await behaviour(decoded, context)
                if audited is not None and self._audit is not None:
                    for entity in audited(current_principal(), decoded):
                        self._audit(Requested(rule.action, entity), current_caller())
                return answer
            except MarinError as error:
                await _abort(context, error)

        return serve

    def _streamed(
        self,
        behaviour: Behaviour,
        method: str,
        rule: Rule,
        decode: Decoder | None,
    ) -> Callable[..., Awaitable[None]]:
        watched = not method.startswith(_LASTING)

        async def serve(request: Any, context: Context) -> None:
            _CONTEXT.set(context)
            try:
                decoded, principal = _checked(request, rule, decode), current_principal()
                may_end = principal.kind is PrincipalKind.JOB
                # Closed here and now when the caller goes away, not when the collector finds it.
                with self._counted(method, watched), self._revocable(principal):
                    async with aclosing(behaviour(decoded, context)) as responses:
                        async for response in responses:
                            if may_end:
                                self._check_live(principal)
                            await context.write(response)
            except MarinError as error:
                await _abort(context, error)

        return serve


def _checked(request: Any, rule: Rule, decode: Decoder | None) -> Any:
    """Return the decoded request if its caller is authorized. The servicer checks the messages of a stream."""
    if decode is None:
        return request
    decoded = decode(request)
    authorize_all(current_principal(), rule, decoded)
    return decoded


class _Complaints:
    """Logs lines that any caller can provoke, at most one a minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = 0.0
        self._unsaid = 0

    def complain(self, line: str) -> None:
        now = self._clock()
        if now < self._next:
            self._unsaid += 1
            return
        logger.warning("%s%s", line, f" (and {self._unsaid} more such calls before)" if self._unsaid else "")
        self._next, self._unsaid = now + _BETWEEN_COMPLAINTS_S, 0


def _refusal(error: MarinError) -> Handler:
    """Return a handler that refuses a call of any kind without reading it."""

    async def refuse(_: Any, context: Context) -> None:
        await _abort(context, error)

    return grpc.stream_stream_rpc_method_handler(refuse)


async def _abort(context: Context, error: MarinError) -> NoReturn:
    code, message = to_status(error)
    await context.abort(code, message)
    raise AssertionError("abort returns never")
