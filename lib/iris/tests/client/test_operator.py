"""What an operator's calls ask of the cluster, and what they return."""

from typing import Any

import pytest

from iris.client import Checkpoint
from iris.client.operator import Operator
from iris.client.tokens import UserTokenStatus
from iris.client.types import SliceStatus, UserBudgetStatus
from iris.cluster.types import PriorityBand
from iris.rpc.generated import access_pb2 as access
from iris.rpc.generated import iris_pb2 as pb
from support.iris.played_connection import PlayedConnection


@pytest.fixture
def cluster() -> Any:
    made = access.UserToken(token_id="ab12", user="ann", note="laptop", created_by="admin root", created_at_ms=7)
    revoked = access.UserToken(token_id="ab12", user="ann", revoked_by="admin root", revoked_at_ms=8)
    return PlayedConnection(
        CordonWorker=pb.CordonWorkerResponse(moved_attempt_ids=["/a/b/0:0"]),
        UncordonWorker=pb.UncordonWorkerResponse(former_reason="slow"),
        RemoveWorker=pb.RemoveWorkerResponse(lost_attempt_ids=["/a/b/0:1"]),
        ListSlices=pb.ListSlicesResponse(slices=[pb.SliceInfo(name="a-0", scale_group="a", state="joined")]),
        CreateSlice=pb.CreateSliceResponse(name="v5p-0"),
        DeleteSlice=pb.DeleteSliceResponse(),
        SetBudget=pb.SetBudgetResponse(),
        ListBudgets=pb.ListBudgetsResponse(budgets=[pb.UserBudget(user="ann", max_weight=2, held_weight=1)]),
        CreateToken=pb.CreateTokenResponse(token="u:ann:x"),
        ListUserTokens=access.ListUserTokensResponse(tokens=[made]),
        RevokeUserToken=access.RevokeUserTokenResponse(revoked=revoked),
        Checkpoint=pb.CheckpointResponse(remote_state_dir="gs://b", generation=1, sequence=2, at_ms=3),
    )


@pytest.fixture
def operator(cluster: Any) -> Operator:
    return Operator(cluster)


def test_each_call_asks_once_and_says_what_came_of_it(cluster: PlayedConnection, operator: Operator) -> None:
    assert operator.cordon("w", "slow") == ["/a/b/0:0"]
    assert operator.cordon("w", "slow", drain=True) == ["/a/b/0:0"]
    assert operator.uncordon("w") == "slow"
    assert operator.remove_worker("w", "burnt") == ["/a/b/0:1"]
    operator.set_budget("ann", max_weight=2, max_band=PriorityBand.BATCH)
    operator.set_budget("ann")
    assert operator.budgets() == [UserBudgetStatus("ann", 2, PriorityBand.PRODUCTION, 1)]
    operator.budgets("ann")
    operator.delete_slice("v5p-0")
    assert operator.create_token("ann", "laptop") == "u:ann:x"
    assert operator.create_slice("v5p") == "v5p-0"
    batch = pb.UserBudget(user="ann", max_weight=2, max_band=pb.PRIORITY_BAND_BATCH)
    assert cluster.requests == [
        pb.CordonWorkerRequest(worker_id="w", reason="slow"),
        pb.CordonWorkerRequest(worker_id="w", reason="slow", drain=True),
        pb.UncordonWorkerRequest(worker_id="w"),
        pb.RemoveWorkerRequest(worker_id="w", reason="burnt"),
        pb.SetBudgetRequest(budget=batch),
        pb.SetBudgetRequest(budget=pb.UserBudget(user="ann", max_band=pb.PRIORITY_BAND_PRODUCTION)),
        pb.ListBudgetsRequest(),
        pb.ListBudgetsRequest(user="ann"),
        pb.DeleteSliceRequest(name="v5p-0"),
        pb.CreateTokenRequest(user="ann", note="laptop"),
        pb.CreateSliceRequest(group="v5p"),
    ]
    assert set(cluster.options[:-2]) == {(12.0, True)}
    assert cluster.options[-2:] == [(12.0, False)] * 2, "a second token or slice would stay"


def test_slices_are_read_from_the_wire(operator: Operator) -> None:
    assert operator.slices() == [SliceStatus("a-0", "a", "joined", 0, 0)]


def test_tokens_of_users(cluster: PlayedConnection, operator: Operator) -> None:
    assert operator.user_tokens("ann") == [UserTokenStatus("ab12", "ann", "laptop", "admin root", 7)]
    assert operator.revoke_user_token("ab12").revoked_by == "admin root"
    assert cluster.requests == [
        access.ListUserTokensRequest(user="ann"),
        access.RevokeUserTokenRequest(token_id="ab12"),
    ]


def test_a_checkpoint_may_take_long_and_is_not_begun_twice(cluster: PlayedConnection, operator: Operator) -> None:
    assert operator.checkpoint() == Checkpoint("gs://b", 1, 2, 3)
    assert cluster.options == [(3600.0, False)]
