"""AccessService: admits workers to the cluster, and revokes them."""

# ruff: noqa: ARG002  # every method takes grpc's context and a request, needed or not

from typing import Any

from iris.controller.access.interceptor import current_principal
from iris.controller.context import Controller
from iris.controller.services.worker import check_worker_id
from iris.domain.access import JoinToken, UserToken
from iris.domain.ids import WorkerId
from iris.rpc.generated import access_pb2 as pb
from iris.rpc.generated import access_pb2_grpc
from rigging.errors import Conflict

Context = Any  # grpc's own, which is untyped here


class AccessService(access_pb2_grpc.AccessServiceServicer):
    """Serves new workers and admins."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        controller, worker_id = self._controller, WorkerId(request.worker_id)
        check_worker_id(worker_id)
        if controller.sessions.present(worker_id) and not controller.credentials.is_known(worker_id):
            # One that shows a token made with the cluster's secret, as the worker of a local cluster does.
            raise Conflict(f"a worker {worker_id!r} is already connected; use another --name")
        controller.credentials.join(current_principal().name, worker_id, request.credential_sha256)
        await controller.confirm()
        return pb.JoinResponse(version=controller.version())

    async def CreateJoinToken(self, request: pb.CreateJoinTokenRequest, context: Context) -> pb.CreateJoinTokenResponse:
        made, text = self._controller.credentials.create(
            request.lifetime_ms, request.max_uses, request.note, str(current_principal())
        )
        await self._controller.confirm()
        return pb.CreateJoinTokenResponse(token=text, made=self._to_wire(made))

    async def ListJoinTokens(self, request: pb.ListJoinTokensRequest, context: Context) -> pb.ListJoinTokensResponse:
        return pb.ListJoinTokensResponse(
            tokens=[self._to_wire(token) for token in self._controller.credentials.tokens()]
        )

    async def RevokeJoinToken(self, request: pb.RevokeJoinTokenRequest, context: Context) -> pb.RevokeJoinTokenResponse:
        revoked = self._controller.credentials.revoke_token(request.token_id, str(current_principal()))
        await self._controller.confirm()
        return pb.RevokeJoinTokenResponse(revoked=self._to_wire(revoked))

    async def ListUserTokens(self, request: pb.ListUserTokensRequest, context: Context) -> pb.ListUserTokensResponse:
        found = self._controller.credentials.users.tokens(request.user)
        return pb.ListUserTokensResponse(tokens=map(_user_token_to_wire, found))

    async def RevokeUserToken(self, request: pb.RevokeUserTokenRequest, context: Context) -> pb.RevokeUserTokenResponse:
        revoked = self._controller.credentials.users.revoke(request.token_id, str(current_principal()))
        await self._controller.confirm()
        return pb.RevokeUserTokenResponse(revoked=_user_token_to_wire(revoked))

    async def RevokeWorker(self, request: pb.RevokeWorkerRequest, context: Context) -> pb.RevokeWorkerResponse:
        controller, worker_id = self._controller, WorkerId(request.worker_id)
        by = str(current_principal())
        controller.credentials.revoke_worker(worker_id, by)
        reason = f"its credential was revoked by {by}" + (f": {request.reason}" if request.reason else "")
        was_connected = controller.sessions.expel(worker_id, reason)
        await controller.confirm()
        return pb.RevokeWorkerResponse(was_connected=was_connected)

    def _to_wire(self, token: JoinToken) -> pb.JoinToken:
        return pb.JoinToken(
            token_id=token.token_id,
            note=token.note,
            created_by=token.created_by,
            created_at_ms=token.created_at_ms,
            expires_at_ms=token.expires_at_ms,
            max_uses=token.max_uses,
            uses=token.uses,
            revoked_by=token.revoked_by,
            revoked_at_ms=token.revoked_at_ms,
            workers=self._controller.credentials.joined_with(token.token_id),
        )


def _user_token_to_wire(token: UserToken) -> pb.UserToken:
    return pb.UserToken(
        token_id=token.token_id,
        user=token.user,
        note=token.note,
        created_by=token.created_by,
        created_at_ms=token.created_at_ms,
        revoked_by=token.revoked_by,
        revoked_at_ms=token.revoked_at_ms,
    )
