"""The calls of operators: cordons, budgets, checkpoints."""

from iris.client.connection.connection import Connection
from iris.client.connection.wire import checkpoint, user_budget
from iris.client.types import Checkpoint, UserBudgetStatus
from iris.cluster.types import PriorityBand
from iris.rpc import iris_pb2 as pb

_CHECKPOINT_SECONDS = 3600.0


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

    def create_token(self, user: str) -> str:
        """A token by which `user` may act for the jobs of that name. Raises InvalidRequest."""
        reply = self._connection.ask(lambda c: c.cluster.CreateToken, pb.CreateTokenRequest(user=user))
        return reply.token

    def checkpoint(self) -> Checkpoint:
        """Write a snapshot of the controller's state now. Raises Conflict when it keeps no remote state."""
        request = pb.CheckpointRequest()
        reply = self._connection.ask(lambda c: c.cluster.Checkpoint, request, seconds=_CHECKPOINT_SECONDS, retry=False)
        return checkpoint(reply)
