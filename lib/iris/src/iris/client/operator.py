"""The calls of operators: cordons, budgets, checkpoints."""

from iris.client.connection.connection import Connection
from iris.client.connection.wire import checkpoint, user_budget
from iris.client.tokens import JoinTokenStatus, UserTokenStatus, join_token, user_token
from iris.client.types import Checkpoint, UserBudgetStatus
from iris.cluster.types import PriorityBand
from iris.rpc.generated import access_pb2 as access
from iris.rpc.generated import dashboard_pb2 as dashboard
from iris.rpc.generated import iris_pb2 as pb

_CHECKPOINT_SECONDS = 3600.0
_LINK_SECONDS = 150.0  # the server of the pages is started for the first link


class Operator:
    """Made by `IrisClient.operator`. Every call raises Denied for a caller who may not, and is safe to repeat."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def cordon(self, worker_id: str, reason: str, *, drain: bool = False) -> list[str]:
        """Assign nothing more to a worker; with `drain` send away what runs there, and return those attempts.

        Args:
            worker_id: The worker.
            reason: Shown to users.
            drain: Its attempts start again elsewhere, at no charge to their retries.
        """
        request = pb.CordonWorkerRequest(worker_id=worker_id, reason=reason, drain=drain)
        reply = self._connection.ask(lambda c: c.cluster.CordonWorker, request)
        return list(reply.moved_attempt_ids)

    def uncordon(self, worker_id: str) -> str:
        """Use a worker again; returns why it was not, empty when it was. Raises NotFound."""
        request = pb.UncordonWorkerRequest(worker_id=worker_id)
        reply = self._connection.ask(lambda c: c.cluster.UncordonWorker, request)
        return reply.former_reason

    def remove_worker(self, worker_id: str, reason: str) -> list[str]:
        """Tell the cluster that a worker's host is gone with all that ran there; returns what it waited for.

        Raises:
            NotFound: No such worker. InvalidRequest: No reason. Conflict: The worker is connected.
        """
        request = pb.RemoveWorkerRequest(worker_id=worker_id, reason=reason)
        reply = self._connection.ask(lambda c: c.cluster.RemoveWorker, request)
        return list(reply.lost_attempt_ids)

    def set_budget(self, user: str, *, max_weight: float = 0, max_band: PriorityBand = PriorityBand.PRODUCTION) -> None:
        """Set the limits of a user; see `UserBudgetStatus`.

        Args:
            user: The user.
            max_weight: Of what runs at a time; None: as it is.
            max_band: The most urgent band allowed; None: as it is.

        Raises:
            InvalidRequest: A limit that cannot be.
        """
        band = pb.PriorityBand.Value(f"PRIORITY_BAND_{max_band.name}")
        request = pb.SetBudgetRequest(budget=pb.UserBudget(user=user, max_weight=max_weight, max_band=band))
        self._connection.ask(lambda c: c.cluster.SetBudget, request)

    def budgets(self, user: str = "") -> list[UserBudgetStatus]:
        """Return the limits and the use of this user; empty: of every user for whom limits were set."""
        reply = self._connection.ask(lambda c: c.cluster.ListBudgets, pb.ListBudgetsRequest(user=user))
        return [user_budget(budget) for budget in reply.budgets]

    def create_token(self, user: str, note: str = "") -> str:
        """Make a token by which `user` may act for the jobs of that name; its text is shown this once.

        Args:
            user: The user.
            note: What it is for.

        Raises:
            InvalidRequest: The name or the note cannot be.
        """
        request = pb.CreateTokenRequest(user=user, note=note)
        # Not repeated by itself: a token whose text was lost would stay.
        return self._connection.ask(lambda c: c.cluster.CreateToken, request, retry=False).token

    def user_tokens(self, user: str = "") -> list[UserTokenStatus]:
        """Return the tokens of a user (empty: of all), the oldest first, without their secrets."""
        reply = self._connection.ask(lambda c: c.access.ListUserTokens, access.ListUserTokensRequest(user=user))
        return [user_token(token) for token in reply.tokens]

    def revoke_user_token(self, token_id: str) -> UserTokenStatus:
        """Refuse a user's token from now on, also in what it has open; jobs go on. Raises NotFound."""
        request = access.RevokeUserTokenRequest(token_id=token_id)
        return user_token(self._connection.ask(lambda c: c.access.RevokeUserToken, request).revoked)

    def login_link(self, *, port: int = 0, allow_changes: bool = False) -> tuple[str, str]:
        """Return a link to the cluster's pages that is good once, and a note for people. They are served from then on.

        Args:
            port: Where they are to be served, if they are not yet, on the controller's machine; 0: any free port.
            allow_changes: The pages may stop jobs and cordon workers, as far as the caller may.

        Raises:
            InvalidRequest: The controller's environment lacks what they need. Unavailable: They do not start.
        """
        request = dashboard.CreateLoginLinkRequest(port=port, allow_changes=allow_changes)
        reply = self._connection.ask(lambda c: c.dashboard.CreateLoginLink, request, seconds=_LINK_SECONDS)
        return reply.url, reply.note

    def create_join_token(self, *, lifetime_ms: int, max_uses: int = 1, note: str = "") -> tuple[str, JoinTokenStatus]:
        """Make a token by which workers may join; returns its text, which is shown this once, and what is known of it.

        Args:
            lifetime_ms: Until it expires.
            max_uses: Workers that may join with it.
            note: What it is for.

        Raises:
            InvalidRequest: A number or the note is out of range.
        """
        request = access.CreateJoinTokenRequest(lifetime_ms=lifetime_ms, max_uses=max_uses, note=note)
        # Not repeated by itself: a token whose text was lost would stay.
        reply = self._connection.ask(lambda c: c.access.CreateJoinToken, request, retry=False)
        return reply.token, join_token(reply.made)

    def join_tokens(self) -> list[JoinTokenStatus]:
        """Return all join tokens, the oldest first; without their secrets, which nobody has any more."""
        reply = self._connection.ask(lambda c: c.access.ListJoinTokens, access.ListJoinTokensRequest())
        return [join_token(token) for token in reply.tokens]

    def revoke_join_token(self, token_id: str) -> JoinTokenStatus:
        """Let nobody join with a token any more; workers that have joined stay. Raises NotFound."""
        request = access.RevokeJoinTokenRequest(token_id=token_id)
        return join_token(self._connection.ask(lambda c: c.access.RevokeJoinToken, request).revoked)

    def revoke_worker(self, worker_id: str, reason: str = "") -> bool:
        """Refuse a worker that has joined from now on; returns whether it was connected. Raises NotFound.

        Args:
            worker_id: The worker.
            reason: Told to it.
        """
        request = access.RevokeWorkerRequest(worker_id=worker_id, reason=reason)
        return self._connection.ask(lambda c: c.access.RevokeWorker, request).was_connected

    def checkpoint(self) -> Checkpoint:
        """Write a snapshot of the controller's state now. Raises Conflict when it keeps no remote state."""
        request = pb.CheckpointRequest()
        reply = self._connection.ask(lambda c: c.cluster.Checkpoint, request, seconds=_CHECKPOINT_SECONDS, retry=False)
        return checkpoint(reply)
