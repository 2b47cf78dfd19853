import threading
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import pytest

from iris.client.errors import JobAlreadyExists
from iris.client.job_env import JobEnv
from iris.client.plan import JobLimits, JobPlan
from iris.client.submission.submit import INLINE_PAYLOAD_BYTES, Submission, Submitter, chosen_policy, pickle_callable
from iris.cluster.constraints import Constraint, ConstraintOp
from iris.cluster.types import (
    CoschedulingConfig,
    Entrypoint,
    EnvironmentSpec,
    ExistingJobPolicy,
    PriorityBand,
    ResourceSpec,
    gpu_device,
    tpu_device,
)
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import AlreadyExists, InvalidRequest, NotFound

TRUE = Entrypoint.from_command("true")


def submitter(cluster: Any, environ: Mapping[str, str] | None = None, **options: Any) -> Submitter:
    options = {"user": "ann", **options, "environ": {} if environ is None else environ}
    return Submitter(cluster, None, calls=cluster, **options)


def submit(cluster: Any, existing: Any = "fail", key: str | None = None, **fields: Any) -> Submission:
    plan = JobPlan(**{"entrypoint": TRUE, "name": "n", **fields})
    return submitter(cluster).submit(plan, existing=existing, idempotency_key=key)


@pytest.mark.parametrize(("seconds", "ms"), [(None, 0), (0.001, 1), (0.0016, 2), (1.5, 1500), (1e6, 10**9)])
def test_seconds_become_milliseconds_and_never_none_at_all(cluster: Any, seconds: float | None, ms: int) -> None:
    submit(cluster, limits=JobLimits(timeout=seconds, scheduling_timeout=seconds))
    assert (cluster.spec.timeout_ms, cluster.spec.scheduling_timeout_ms) == (ms, ms)


@pytest.mark.parametrize(("seconds", "ms"), [(None, 0), (0.0001, 1), (2.5, 2500), (30 * 86_400, 30 * 86_400_000)])
def test_a_fence_in_milliseconds(cluster: Any, seconds: float | None, ms: int) -> None:
    submit(cluster, exclusive=True, fence_after=seconds)
    assert cluster.spec.fence_after_ms == ms


@pytest.mark.parametrize(
    ("band", "sent"),
    [
        (None, pb.PRIORITY_BAND_UNSPECIFIED),
        ("batch", pb.PRIORITY_BAND_BATCH),
        ("Production", pb.PRIORITY_BAND_PRODUCTION),
        (PriorityBand.INTERACTIVE, pb.PRIORITY_BAND_INTERACTIVE),
    ],
)
def test_bands(cluster: Any, band: Any, sent: int) -> None:
    submit(cluster, priority_band=band)
    assert cluster.spec.band == sent


def test_policies(cluster: Any) -> None:
    for word in ("fail", "adopt", "replace"):
        submit(cluster, existing=word)
        assert cluster.requests[-1][0].existing == pb.ExistingJobPolicy.Value(f"EXISTING_JOB_POLICY_{word.upper()}")


def test_each_submission_has_a_key_of_its_own_unless_one_is_given(cluster: Any) -> None:
    first, second = submit(cluster), submit(cluster)
    assert first.key != second.key
    assert len(first.key) == 32
    assert cluster.requests[-1][0].idempotency_key == second.key
    assert submit(cluster, key="mine").key == "mine"


def test_the_name_in_use_and_other_refusals(cluster: Any) -> None:
    cluster.answers = [[AlreadyExists("taken")], [NotFound("x")]]
    with pytest.raises(JobAlreadyExists, match="taken"):
        submit(cluster)
    with pytest.raises(NotFound):
        submit(cluster)


@pytest.mark.parametrize(
    ("size", "inline"), [(10, True), (INLINE_PAYLOAD_BYTES, True), (INLINE_PAYLOAD_BYTES + 1, False)]
)
def test_small_callables_come_along_and_large_ones_once(cluster: Any, size: int, inline: bool) -> None:
    entrypoint = Entrypoint.from_pickle(bytes(size), "m:f")
    for _ in range(2):
        submit(cluster, entrypoint=entrypoint)
        assert [len(blob) for blob in cluster.requests[-1][0].inline_blobs] == ([size] if inline else [])
    digest = cluster.spec.entrypoint.callable.payload_digest
    assert set(cluster.blobs) == (set() if inline else {digest})
    assert cluster.looked_for == ([] if inline else [[digest]] * 2)


def test_a_payload_that_was_removed_since_is_sent_again_and_only_what_was_refused_is_repeated(cluster: Any) -> None:
    large = [Entrypoint.from_pickle(bytes(INLINE_PAYLOAD_BYTES + number), "m:f") for number in (1, 2)]
    plans = [JobPlan(entrypoint, f"n{place}") for place, entrypoint in enumerate((*large, TRUE), 1)]
    cluster.answers = [[pb.SubmitJobResponse(job_id="/ann/n1"), InvalidRequest("no blob"), InvalidRequest("bad")]]
    submit = cluster.submit

    def forgetful(requests: Sequence[pb.SubmitJobRequest]) -> list[Any]:
        if not cluster.requests:
            cluster.blobs.clear()
        return submit(requests)

    cluster.submit = forgetful
    results = submitter(cluster).submit_many(plans, existing="fail")
    assert [request.spec.job_id for request in cluster.requests[1]] == ["/ann/n2", "/ann/n3"]
    keys = [request.idempotency_key for request in cluster.requests[0]]
    assert results == [Submission(f"/ann/n{place}", key) for place, key in enumerate(keys, 1)]
    assert len(cluster.blobs) == 1


def test_a_refusal_that_has_nothing_to_do_with_blobs_stands(cluster: Any) -> None:
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
def test_what_is_a_limit_and_who_chose_so(cluster: Any, options: dict[str, Any], enforced: str, mode: str) -> None:
    submit(cluster, **options)
    assert (cluster.spec.enforced, cluster.spec.limits_mode) == (enforced, mode)


V5P_64, H100 = tpu_device("v5p-64"), gpu_device("H100", 8)
ONE_EACH = "n: a slice of v5p-64 has 8 VMs, and each task gets one VM of any slice"


@pytest.mark.parametrize(
    ("device", "group", "asked", "sent", "words"),
    [
        (V5P_64, "tpu-name", 9, 16, "n: 9 tasks become 16, to fill whole slices of v5p-64"),
        (V5P_64, "tpu-name", 16, 16, ""),
        (V5P_64, None, 9, 9, ONE_EACH),
        (V5P_64, "rack", 9, 9, ""),
        (tpu_device("v5p-8"), None, 9, 9, ""),
        (H100, "tpu-name", 9, 9, ""),
        (None, "tpu-name", 9, 9, ""),
    ],
)
def test_what_becomes_of_slices_of_several_vms_is_told(
    cluster: Any, device: Any, group: str | None, asked: int, sent: int, words: str
) -> None:
    told: list[str] = []
    gang = CoschedulingConfig(group) if group else None
    plan = JobPlan(TRUE, "n", resources=ResourceSpec(device=device), replicas=asked, coscheduling=gang)
    submitter(cluster, warn=told.append).submit(plan, existing="fail", idempotency_key=None)
    assert cluster.spec.replicas == sent
    assert [line.partition(";")[0] for line in told] == ([words] if words else [])


class Uncertain:
    """As arrays are: equal or not is no plain truth."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"name": "b", "replicas": 2},
        {"name": "b", "priority_band": "batch"},
        {"name": "b", "entrypoint": Entrypoint.from_callable(id, Uncertain())},
    ],
    ids=lambda change: " ".join(change),
)
def test_a_job_after_another_is_sent_as_it_would_be_alone(cluster: Any, change: dict[str, Any]) -> None:
    """What is sent for one is copied from the last one only where nothing but the name differs."""
    own = submitter(cluster)
    for fields in ({}, change, change):  # arguments of callables are not compared
        plan = JobPlan(**{"entrypoint": TRUE, "name": "n", **fields})
        own.submit(plan, existing="fail", idempotency_key="k")
    submit(cluster, key="k", **change)
    (_,), (after,), (again,), (alone,) = cluster.requests
    assert after == again == alone


def test_what_was_changed_in_place_since_the_last_job_is_sent(cluster: Any) -> None:
    environ: dict[str, str] = {"A": "no"}
    own = submitter(cluster, environ)
    ports, variables = ["http"], {"A": "1"}
    plan = JobPlan(TRUE, "n", ports=ports, environment=EnvironmentSpec(env_vars=variables))
    own.submit(plan, existing="fail", idempotency_key=None)
    ports.append("more")
    variables["A"] = "2"
    environ["MARIN_PREFIX"] = "/p"
    own.submit(plan, existing="adopt", idempotency_key="key")
    assert list(cluster.spec.ports) == ["http", "more"]
    assert dict(cluster.spec.environment.env_vars) == {"A": "2", "MARIN_PREFIX": "/p"}
    [sent] = cluster.requests[-1]
    assert (sent.existing, sent.idempotency_key) == (pb.EXISTING_JOB_POLICY_ADOPT, "key")


def test_names_are_below_the_job_or_the_user(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert [str(name) for name in (child.job_name("n"), child.job_name("n", "bob"))] == ["/bob/p/n"] * 2
    assert (child.prefix(), str(child.job_name("n", parent_id="/bob/q"))) == ("/bob/p", "/bob/q/n")
    with pytest.raises(InvalidRequest, match="user 'eve': a job submitted from inside /bob/p belongs to 'bob'"):
        child.job_name("n", "eve")


def test_what_children_inherit(cluster: Any) -> None:
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
        ({"name": 5}, r"^name must be text, not 5$"),
        ({"user": 5}, r"^user must be text, not 5$"),
        ({"resources": {"cpu": 1}}, r"^resources must be a ResourceSpec, not \{'cpu': 1\}$"),
        ({"environment": ["a"]}, r"^environment must be an EnvironmentSpec, not \['a'\]$"),
        ({"constraints": ["zone=a"]}, r"^constraints\[0\] must be a Constraint, not 'zone=a'$"),
        ({"constraints": Constraint("zone", ConstraintOp.EXISTS)}, r"^constraints must be a list of Constraint, not"),
        ({"coscheduling": "tpu-name"}, r"^coscheduling must be a CoschedulingConfig, or None, not 'tpu-name'$"),
        ({"ports": [80]}, r"^ports\[0\] must be text, not 80$"),
        ({"priority_band": 99}, r"^priority_band must be one of production, interactive, batch, or None, not 99$"),
        ({"exclusive": "no"}, r"^exclusive must be True or False, not 'no'$"),
        ({"exclusive": True, "fence_after": "9"}, r"^fence_after must be a number of seconds, or None, not '9'$"),
        ({"working_dir": 5}, r"^working_dir must be text, not 5$"),
        ({"description": 5}, r"^description must be text, not 5$"),
        ({"key": 5}, r"^idempotency_key must be text, not 5$"),
        ({"limits": 3}, r"^limits must be JobLimits, not 3$"),
        ({"name": "a/b"}, "a/b"),
        ({"replicas": 0}, "replicas must be a whole number from 1 to 2147483647, not 0"),
        ({"limits": JobLimits(max_retries_failure=-1)}, "max_retries_failure"),
        ({"limits": JobLimits(timeout=0)}, "timeout must be a number of seconds above 0"),
        ({"limits": JobLimits(timeout=0.0001)}, r"^timeout must be at least 0\.001 s, not 0\.0001: "),
        ({"fence_after": 60.0}, "fence_after is 60.0, but the job is not exclusive"),
        ({"exclusive": True, "fence_after": 0.0}, "fence_after must be seconds above 0, at most 2592000 s"),
        ({"exclusive": True, "fence_after": 30 * 86_400 + 1}, "at most 2592000 s"),
        ({"constraints": [Constraint("zone", ConstraintOp.EQ, ("a", "b"))]}, "has 2 values; EQ takes one value"),
        ({"priority_band": "urgent"}, "'urgent' is not one of production, interactive, batch"),
        ({"entrypoint": Entrypoint.from_callable(len, threading.Lock())}, "cannot be sent to another process"),
        ({"soft_limits": True, "cpu_quota": True}, "soft_limits and cpu_quota are both set: set only one"),
        ({"existing": "keep"}, r"existing 'keep' is not one of fail, adopt, replace"),
    ],
)
def test_what_can_never_work_is_refused_by_its_name_before_anything_is_sent(
    cluster: Any, fields: Any, error: str
) -> None:
    with pytest.raises(InvalidRequest, match=error):
        submit(cluster, **fields)
    assert (cluster.requests, cluster.looked_for) == ([], [])


@pytest.mark.parametrize(
    ("plans", "error"),
    [
        (JobPlan(TRUE, "n"), r"^plans must be a list of JobPlan, not JobPlan\("),
        ([JobPlan(TRUE, "n"), "n"], r"^plans\[1\] must be a JobPlan, not 'n'$"),
        ("n", r"^plans must be a list of JobPlan, not 'n'$"),
    ],
)
def test_what_is_submitted_together_is_a_list_of_plans(cluster: Any, plans: Any, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        submitter(cluster).submit_many(plans, existing="fail")
    assert cluster.requests == []


def test_lists_of_a_plan_may_be_read_once_only(cluster: Any) -> None:
    submit(cluster, ports=(name for name in ("a", "b")), constraints=iter([Constraint("zone", ConstraintOp.EXISTS)]))
    assert (list(cluster.spec.ports), len(cluster.spec.constraints)) == (["a", "b"], 1)


def test_adopting_and_replacing_contradict_each_other() -> None:
    assert chosen_policy("fail", adopt=True) is chosen_policy("adopt", adopt=True) is ExistingJobPolicy.ADOPT
    assert chosen_policy("replace", adopt=False) is ExistingJobPolicy.REPLACE
    with pytest.raises(
        InvalidRequest, match="existing 'replace' and adopt_existing contradict each other; give only one"
    ):
        chosen_policy(ExistingJobPolicy.REPLACE, adopt=True)
    with pytest.raises(InvalidRequest, match=r"^adopt_existing must be True or False, not 'no'$"):
        chosen_policy("fail", adopt="no")  # type: ignore[arg-type]
