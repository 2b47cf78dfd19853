"""Submissions: units, limits and policies; and blobs that the cluster has lost since."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import cloudpickle
import pytest

from iris.client.connection.calls import JobCalls
from iris.client.connection.connection import Connection
from iris.client.errors import JobAlreadyExists
from iris.client.job_env import JobEnv
from iris.client.plan import JobLimits, JobPlan
from iris.client.submission.submit import INLINE_PAYLOAD_BYTES, Submission, Submitter, chosen_policy, pickle_callable
from iris.cluster.constraints import Constraint, ConstraintOp
from iris.cluster.types import Entrypoint, EnvironmentSpec, ExistingJobPolicy, PriorityBand, ResourceSpec
from iris.rpc import iris_pb2 as pb
from rigging.errors import AlreadyExists, InvalidRequest, NotFound

TRUE = Entrypoint.from_command("true")


class Cluster:
    """Takes submissions; `answers` are what it says to the first ones instead."""

    def __init__(self) -> None:
        self.requests: list[list[pb.SubmitJobRequest]] = []
        self.answers: list[list[Any]] = []
        self.blobs: set[str] = set()
        self.looked_for: list[list[str]] = []

    def submit(self, requests: Sequence[pb.SubmitJobRequest]) -> list[Any]:
        self.requests.append(list(requests))
        if self.answers:
            return self.answers.pop(0)
        return [pb.SubmitJobResponse(job_id=request.spec.job_id) for request in requests]

    def missing_blobs(self, digests: Sequence[str]) -> list[str]:
        self.looked_for.append(list(digests))
        return [digest for digest in digests if digest not in self.blobs]

    def upload_blobs(self, messages: Callable[[], Iterator[pb.UploadBlobsRequest]]) -> None:
        self.blobs.update(chunk.digest for message in messages() for chunk in message.chunks)

    @property
    def spec(self) -> pb.JobSpec:
        return self.requests[-1][-1].spec


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def submitter(cluster: Cluster, environ: Mapping[str, str] | None = None, **options: Any) -> Submitter:
    return Submitter(
        cast(Connection, cluster),
        None,
        environ=environ or {},
        calls=cast(JobCalls, cluster),
        **{"user": "ann", **options},
    )


def submit(cluster: Cluster, existing: Any = "fail", key: str | None = None, **fields: Any) -> Submission:
    plan = JobPlan(**{"entrypoint": TRUE, "name": "n", **fields})
    return submitter(cluster).submit(plan, existing=existing, idempotency_key=key)


@pytest.mark.parametrize(("seconds", "ms"), [(None, 0), (0.001, 1), (0.0016, 2), (1.5, 1500), (1e6, 10**9)])
def test_seconds_become_milliseconds_and_never_none_at_all(cluster: Cluster, seconds: float | None, ms: int) -> None:
    submit(cluster, limits=JobLimits(timeout=seconds, scheduling_timeout=seconds))
    assert (cluster.spec.timeout_ms, cluster.spec.scheduling_timeout_ms) == (ms, ms)
    with pytest.raises(InvalidRequest, match=r"^timeout must be at least 0\.001 s, not 0\.0001: "):
        submit(cluster, limits=JobLimits(timeout=0.0001))


@pytest.mark.parametrize(("seconds", "ms"), [(None, 0), (0.0001, 1), (2.5, 2500), (30 * 86_400, 30 * 86_400_000)])
def test_a_fence_in_milliseconds(cluster: Cluster, seconds: float | None, ms: int) -> None:
    submit(cluster, exclusive=True, fence_after=seconds)
    assert cluster.spec.fence_after_ms == ms
    with pytest.raises(InvalidRequest, match="at most 2592000 s"):
        submit(cluster, exclusive=True, fence_after=30 * 86_400 + 1)


@pytest.mark.parametrize(
    ("band", "sent"),
    [
        (None, pb.PRIORITY_BAND_UNSPECIFIED),
        ("batch", pb.PRIORITY_BAND_BATCH),
        ("Production", pb.PRIORITY_BAND_PRODUCTION),
        (PriorityBand.INTERACTIVE, pb.PRIORITY_BAND_INTERACTIVE),
    ],
)
def test_bands(cluster: Cluster, band: Any, sent: int) -> None:
    submit(cluster, priority_band=band)
    assert cluster.spec.band == sent


def test_policies(cluster: Cluster) -> None:
    for word in ("fail", "adopt", "replace"):
        submit(cluster, existing=word)
        assert cluster.requests[-1][0].existing == pb.ExistingJobPolicy.Value(f"EXISTING_JOB_POLICY_{word.upper()}")
    with pytest.raises(InvalidRequest, match=r"existing 'keep' is not one of fail, adopt, replace"):
        submit(cluster, existing="keep")


def test_each_submission_has_a_key_of_its_own_unless_one_is_given(cluster: Cluster) -> None:
    first, second = submit(cluster), submit(cluster)
    assert first.key != second.key
    assert len(first.key) == 32
    assert cluster.requests[-1][0].idempotency_key == second.key
    assert submit(cluster, key="mine").key == "mine"


def test_the_name_in_use_and_other_refusals(cluster: Cluster) -> None:
    cluster.answers = [[AlreadyExists("taken")], [NotFound("x")]]
    with pytest.raises(JobAlreadyExists, match="taken"):
        submit(cluster)
    with pytest.raises(NotFound):
        submit(cluster)


@pytest.mark.parametrize(
    ("size", "inline"), [(10, True), (INLINE_PAYLOAD_BYTES, True), (INLINE_PAYLOAD_BYTES + 1, False)]
)
def test_small_callables_come_along_and_large_ones_once(cluster: Cluster, size: int, inline: bool) -> None:
    entrypoint = Entrypoint.from_pickle(bytes(size), "m:f")
    for _ in range(2):
        submit(cluster, entrypoint=entrypoint)
        assert [len(blob) for blob in cluster.requests[-1][0].inline_blobs] == ([size] if inline else [])
    digest = cluster.spec.entrypoint.callable.payload_digest
    assert cluster.blobs == (set() if inline else {digest})
    assert cluster.looked_for == ([] if inline else [[digest]] * 2)


def test_a_payload_that_was_removed_since_is_sent_again_and_only_what_was_refused_is_repeated(cluster: Cluster) -> None:
    plans = [
        JobPlan(Entrypoint.from_pickle(bytes(INLINE_PAYLOAD_BYTES + number), "m:f"), f"n{number}") for number in (1, 2)
    ] + [JobPlan(TRUE, "n3")]

    class Forgetting(Cluster):
        def submit(self, requests: Sequence[pb.SubmitJobRequest]) -> list[Any]:
            if not self.requests:
                self.blobs.clear()
                self.requests.append(list(requests))
                names = [request.spec.job_id for request in requests]
                return [pb.SubmitJobResponse(job_id=names[0]), InvalidRequest("no blob"), InvalidRequest("bad")]
            return super().submit(requests)

    forgetting = Forgetting()
    results = submitter(forgetting).submit_many(plans, existing="fail")
    assert [request.spec.job_id for request in forgetting.requests[1]] == ["/ann/n2", "/ann/n3"]
    assert [result.job_id for result in results if isinstance(result, Submission)] == ["/ann/n1", "/ann/n2", "/ann/n3"]
    keys = [request.idempotency_key for request in forgetting.requests[0]]
    assert [result.key for result in results if isinstance(result, Submission)] == keys
    assert len(forgetting.blobs) == 1


def test_a_refusal_that_has_nothing_to_do_with_blobs_stands(cluster: Cluster) -> None:
    cluster.answers = [[InvalidRequest("bad")]]
    with pytest.raises(InvalidRequest, match="bad"):
        submit(cluster)
    assert len(cluster.requests) == 1
    assert cluster.looked_for == [], "a command has no blobs"


@pytest.mark.parametrize(
    ("options", "enforced", "mode"),
    [
        ({}, "", ""),
        ({"resources": ResourceSpec(memory="2GB", disk="3GB")}, "memory,disk", ""),
        ({"limits_said": True}, "memory", ""),
        ({"limits_said": False, "resources": ResourceSpec(memory="2GB", disk="3GB")}, "", ""),
        ({"soft_limits": True, "resources": ResourceSpec(memory="2GB")}, "", "soft"),
        ({"soft_limits": False}, "memory", "enforced"),
        ({"soft_limits": False, "limits_said": False, "cpu_quota": True}, "cpu", "enforced"),
    ],
)
def test_what_is_a_limit_and_who_chose_so(cluster: Cluster, options: dict[str, Any], enforced: str, mode: str) -> None:
    submit(cluster, **options)
    assert (cluster.spec.enforced, cluster.spec.limits_mode) == (enforced, mode)


def test_names_are_below_the_job_or_the_user(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(submitter(cluster).job_name("n")) == "/ann/n"
    assert str(submitter(cluster).job_name("n", "bob")) == "/bob/n"
    assert submitter(cluster).prefix() == "/ann"
    monkeypatch.setattr("iris.client.submission.submit.default_user", lambda: "login")
    assert str(submitter(cluster, user=None).job_name("n")) == "/login/n"
    assert submitter(cluster, user=None).prefix() == "/login"
    for wrong in (submitter(cluster, user=""), submitter(cluster)):
        with pytest.raises(InvalidRequest, match="user is empty"):
            wrong.job_name("n", "")
    inside = JobEnv("h:1", "/bob/p", "/bob/p/0", "/bob/p/0:0", "w", "")
    child = submitter(cluster, inside=inside)
    assert (str(child.job_name("n")), str(child.job_name("n", "bob")), child.prefix()) == (
        "/bob/p/n",
        "/bob/p/n",
        "/bob/p",
    )


def test_what_children_inherit(cluster: Cluster) -> None:
    inside = JobEnv("h:1", "/a/p", "/a/p/0", "/a/p/0:0", "w", "", extras=("tpu",), pip_packages=("x",))
    environ = {"MARIN_A": "1", "MARINX": "2", "OTHER": "3"}
    child = submitter(cluster, environ, inside=inside)
    found = child.environment(EnvironmentSpec(env_vars={"K": "v"}))
    assert (found.extras, found.pip_packages, found.env_vars) == (("tpu",), ("x",), {"MARIN_A": "1", "K": "v"})
    own = child.environment(EnvironmentSpec(["y"], {"MARIN_A": "0"}, ["gpu"]))
    assert (own.extras, own.pip_packages, own.env_vars) == (("gpu",), ("y",), {"MARIN_A": "0"})
    alone = submitter(cluster, environ, inside=inside, inherit=False).environment(EnvironmentSpec())
    assert (alone.extras, alone.pip_packages) == ((), ())


def test_a_callable_is_pickled_and_a_pickle_left_as_it_is() -> None:
    assert pickle_callable(TRUE) == b""
    assert pickle_callable(Entrypoint.from_pickle(b"x", "l")) == b"x"
    assert cloudpickle.loads(pickle_callable(Entrypoint.from_callable(max, 1, key=abs))) == (max, (1,), {"key": abs})
    endless: list[Any] = []
    for _ in range(100_000):
        endless = [endless]
    with pytest.raises(InvalidRequest, match=r"builtins:len cannot be sent to another process"):
        pickle_callable(Entrypoint.from_callable(len, endless))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"entrypoint": "true"}, r"^entrypoint must be an Entrypoint: use .*from_command.*, not 'true'$"),
        ({"entrypoint": len}, r"^entrypoint must be an Entrypoint: .*, not <built-in function len>$"),
        ({"name": 5}, r"^name must be text, not 5$"),
        ({"user": 5}, r"^user must be text, not 5$"),
        ({"resources": {"cpu": 1}}, r"^resources must be a ResourceSpec, not \{'cpu': 1\}$"),
        ({"environment": ["a"]}, r"^environment must be an EnvironmentSpec, not \['a'\]$"),
        ({"constraints": ["zone=a"]}, r"^constraints\[0\] must be a Constraint, not 'zone=a'$"),
        ({"constraints": "zone=a"}, r"^constraints must be a list of Constraint, not 'zone=a'$"),
        ({"constraints": Constraint("zone", ConstraintOp.EXISTS)}, r"^constraints must be a list of Constraint, not"),
        ({"coscheduling": "tpu-name"}, r"^coscheduling must be a CoschedulingConfig, or None, not 'tpu-name'$"),
        ({"ports": "http"}, r"^ports must be a list, e\.g\. \['http'\]$"),
        ({"ports": [80]}, r"^ports\[0\] must be text, not 80$"),
        ({"ports": 80}, r"^ports must be a list of text, not 80$"),
        ({"priority_band": 99}, r"^priority_band must be one of production, interactive, batch, or None, not 99$"),
        ({"exclusive": "no"}, r"^exclusive must be True or False, not 'no'$"),
        ({"exclusive": True, "fence_after": "9"}, r"^fence_after must be a number of seconds, or None, not '9'$"),
        ({"working_dir": 5}, r"^working_dir must be text, not 5$"),
        ({"description": 5}, r"^description must be text, not 5$"),
        ({"key": 5}, r"^idempotency_key must be text, not 5$"),
        ({"limits": 3}, r"^limits must be JobLimits, not 3$"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_its_name(cluster: Cluster, fields: Any, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        submit(cluster, **fields)
    assert cluster.requests == []


@pytest.mark.parametrize(
    ("plans", "error"),
    [
        (JobPlan(TRUE, "n"), r"^plans must be a list of JobPlan, not JobPlan\("),
        ([JobPlan(TRUE, "n"), "n"], r"^plans\[1\] must be a JobPlan, not 'n'$"),
        ("n", r"^plans must be a list of JobPlan, not 'n'$"),
    ],
)
def test_what_is_submitted_together_is_a_list_of_plans(cluster: Cluster, plans: Any, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        submitter(cluster).submit_many(plans, existing="fail")
    assert cluster.requests == []


def test_lists_of_a_plan_may_be_read_once_only(cluster: Cluster) -> None:
    submit(cluster, ports=(name for name in ("a", "b")), constraints=iter([Constraint("zone", ConstraintOp.EXISTS)]))
    assert (list(cluster.spec.ports), len(cluster.spec.constraints)) == (["a", "b"], 1)


def test_adopting_and_replacing_contradict_each_other() -> None:
    assert chosen_policy("fail", adopt=True) is chosen_policy("adopt", adopt=True) is ExistingJobPolicy.ADOPT
    assert chosen_policy("replace", adopt=False) is ExistingJobPolicy.REPLACE
    with pytest.raises(InvalidRequest, match="existing 'replace' and adopt_existing contradict each other; give one"):
        chosen_policy(ExistingJobPolicy.REPLACE, adopt=True)
    with pytest.raises(InvalidRequest, match=r"^adopt_existing must be True or False, not 'no'$"):
        chosen_policy("fail", adopt="no")  # type: ignore[arg-type]
