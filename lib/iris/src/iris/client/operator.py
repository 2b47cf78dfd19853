"""The operations of cluster operators: cordons, budgets, checkpoints."""

from iris.client.connection.connection import Connection
from iris.client.connection.wire import checkpoint, slice_status, user_budget
from iris.client.tokens import JoinTokenStatus, UserTokenStatus, join_token, user_token
from iris.client.types import Checkpoint, SliceStatus, UserBudgetStatus
from iris.cluster.types import PriorityBand
from iris.rpc.generated import access_pb2 as access
from iris.rpc.generated import dashboard_pb2 as dashboard
from iris.rpc.generated import iris_pb2 as pb

_CHECKPOINT_SECONDS = 3600.0
_END_SECONDS = 150.0
_LINK_SECONDS = 150.0  # the server of the pages is started for the first link


class Operator:
    """The operations of `IrisClient.operator`. Every call is idempotent, and raises Denied for an unauthorised
    caller.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def cordon(self, worker_id: str, reason: str, *, drain: bool = False) -> list[str]:
        """Assign no new attempts to a worker. With `drain`, also move its attempts to other workers, and return them.

        Args:
            worker_id: The worker.
            reason: The reason, shown to users.
            drain: Restart its attempts elsewhere, without using up their retries.
        """
        request = pb.CordonWorkerRequest(worker_id=worker_id, reason=reason, drain=drain)
        reply = self._connection.ask(lambda c: c.cluster.CordonWorker, request)
        return list(reply.moved_attempt_ids)

    def uncordon(self, worker_id: str) -> str:
        """Allow assignments to a worker again. Return the reason for its cordon; empty for none. Raise NotFound."""
        request = pb.UncordonWorkerRequest(worker_id=worker_id)
        reply = self._connection.ask(lambda c: c.cluster.UncordonWorker, request)
        return reply.former_reason

    def remove_worker(self, worker_id: str, reason: str) -> list[str]:
        """Tell the cluster that a worker's host and everything on it is gone. Return the attempts that waited for the
        worker.

        Raises:
            NotFound: No such worker. InvalidRequest: No reason. Conflict: The worker is connected.
        """
        request = pb.RemoveWorkerRequest(worker_id=worker_id, reason=reason)
        reply = self._connection.ask(lambda c: c.cluster.RemoveWorker, request)
        return list(reply.lost_attempt_ids)

    def slices(self) -> list[SliceStatus]:
        """Return the slices of scale groups, also those that were over within the last hour."""
        reply = self._connection.ask(lambda c: c.cluster.ListSlices, pb.ListSlicesRequest())
        return list(map(slice_status, reply.slices))

    def create_slice(self, group: str) -> str:
        """Create a slice of a scale group, which the autoscaler does not release; return its name.

        Raises:
            NotFound: No such scale group. Conflict: It has its maximum of slices, or the cluster creates no machines.
        """
        request = pb.CreateSliceRequest(group=group)
        # Not repeated by itself: that could make two.
        return self._connection.ask(lambda c: c.cluster.CreateSlice, request, retry=False).name

    def delete_slice(self, name: str) -> None:
        """Delete a slice. Its attempts are retried elsewhere. Raise NotFound, or Conflict like `create_slice`."""
        self._connection.ask(lambda c: c.cluster.DeleteSlice, pb.DeleteSliceRequest(name=name))

    def end_cluster(self, *, stop_jobs: bool = False) -> tuple[list[str], list[str]]:
        """Delete all slices, then stop the controller. Return the stopped jobs, and the slices whose deletion their
        provider has not confirmed. Raise Conflict if there are live jobs and `stop_jobs` is off.
        """
        request = pb.ShutdownRequest(stop_jobs=stop_jobs, delete_slices=True)
        reply = self._connection.ask(lambda c: c.cluster.Shutdown, request, seconds=_END_SECONDS, retry=False)
        return list(reply.stopped_job_ids), list(reply.left_slices)

    def set_budget(self, user: str, *, max_weight: float = 0, max_band: PriorityBand = PriorityBand.PRODUCTION) -> None:
        """Set the limits of a user (see `UserBudgetStatus`).

        Args:
            user: The user.
            max_weight: The limit of concurrent weight; None leaves it unchanged.
            max_band: The most urgent allowed band; None leaves it unchanged.

        Raises:
            InvalidRequest: The limit is invalid.
        """
        band = pb.PriorityBand.Value(f"PRIORITY_BAND_{max_band.name}")
        request = pb.SetBudgetRequest(budget=pb.UserBudget(user=user, max_weight=max_weight, max_band=band))
        self._connection.ask(lambda c: c.cluster.SetBudget, request)

    def budgets(self, user: str = "") -> list[UserBudgetStatus]:
        """Return a user's limits and use; for an empty name, those of every user with limits."""
        reply = self._connection.ask(lambda c: c.cluster.ListBudgets, pb.ListBudgetsRequest(user=user))
        return [user_budget(budget) for budget in reply.budgets]

    def create_token(self, user: str, note: str = "") -> str:
        """Create a token for a user's jobs. Its text is shown only now.

        Args:
            user: The user.
            note: The token's purpose.

        Raises:
            InvalidRequest: The name or the note is invalid.
        """
        request = pb.CreateTokenRequest(user=user, note=note)
        # Not repeated by itself: a token whose text was lost would stay.
        return self._connection.ask(lambda c: c.cluster.CreateToken, request, retry=False).token

    def user_tokens(self, user: str = "") -> list[UserTokenStatus]:
        """Return the tokens of a user (empty: of all users), oldest first, without their secrets."""
        reply = self._connection.ask(lambda c: c.access.ListUserTokens, access.ListUserTokensRequest(user=user))
        return [user_token(token) for token in reply.tokens]

    def revoke_user_token(self, token_id: str) -> UserTokenStatus:
        """Revoke a user's token, also for its open sessions. Running jobs continue. Raise NotFound."""
        request = access.RevokeUserTokenRequest(token_id=token_id)
        return user_token(self._connection.ask(lambda c: c.access.RevokeUserToken, request).revoked)

    def login_link(self, *, port: int = 0, allow_changes: bool = False) -> tuple[str, str]:
        """Return a single-use link to the cluster's pages, and a note for people. Start to serve the pages if
        necessary.

        Args:
            port: The port on the controller's machine if the pages are not yet served; 0 for any free port.
            allow_changes: Whether the pages may stop jobs and cordon workers, within the caller's permissions.

        Raises:
            InvalidRequest: The controller's environment lacks the required packages. Unavailable: The pages do not
                start.
        """
        request = dashboard.CreateLoginLinkRequest(port=port, allow_changes=allow_changes)
        reply = self._connection.ask(lambda c: c.dashboard.CreateLoginLink, request, seconds=_LINK_SECONDS)
        return reply.url, reply.note

    def create_join_token(self, *, lifetime_ms: int, max_uses: int = 1, note: str = "") -> tuple[str, JoinTokenStatus]:
        """Create a token with which workers can join. Return its text, which is shown only now, and its description.

        Args:
            lifetime_ms: Lifetime in milliseconds.
            max_uses: Number of workers that may join with the token.
            note: The token's purpose.

        Raises:
            InvalidRequest: A number or the note is out of range.
        """
        request = access.CreateJoinTokenRequest(lifetime_ms=lifetime_ms, max_uses=max_uses, note=note)
        # Not repeated by itself: a token whose text was lost would stay.
        reply = self._connection.ask(lambda c: c.access.CreateJoinToken, request, retry=False)
        return reply.token, join_token(reply.made)

    def join_tokens(self) -> list[JoinTokenStatus]:
        """Return all join tokens, oldest first, without their secrets."""
        reply = self._connection.ask(lambda c: c.access.ListJoinTokens, access.ListJoinTokensRequest())
        return [join_token(token) for token in reply.tokens]

    def revoke_join_token(self, token_id: str) -> JoinTokenStatus:
        """Revoke a join token. Workers that already joined stay. Raise NotFound."""
        request = access.RevokeJoinTokenRequest(token_id=token_id)
        return join_token(self._connection.ask(lambda c: c.access.RevokeJoinToken, request).revoked)

    def revoke_worker(self, worker_id: str, reason: str = "") -> bool:
        """Revoke a worker's credential, and return whether it was connected. Raise NotFound.

        Args:
            worker_id: The worker.
            reason: The reason, shown to the worker.
        """
        request = access.RevokeWorkerRequest(worker_id=worker_id, reason=reason)
        return self._connection.ask(lambda c: c.access.RevokeWorker, request).was_connected

    def checkpoint(self) -> Checkpoint:
        """Write a snapshot of the controller's state now. Raise Conflict if the controller has no remote state
        directory.
        """
        request = pb.CheckpointRequest()
        reply = self._connection.ask(lambda c: c.cluster.Checkpoint, request, seconds=_CHECKPOINT_SECONDS, retry=False)
        return checkpoint(reply)
