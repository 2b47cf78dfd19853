"""Permissions: one rule for each RPC, and the function that applies the rules.

The interceptor applies the rule of an RPC twice: by the kind of caller before the message is decoded, and to the
message's entities (`Rule.about`) before the servicer sees it. A servicer adds a check only for messages of a stream, or
if the visible content depends on the caller (`may_read`). An RPC without a rule is refused.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from iris.core.rules.endpoint_rules import has_grace
from iris.core.state.view import ClusterView
from iris.domain.ids import AttemptId, JobId
from iris.domain.states import TaskState
from iris.rpc.auth import Principal, PrincipalKind
from rigging.errors import Denied, InvalidRequest, Unavailable

ADMIN_WORDS: Final = "an admin (the owner of the controller's state directory)"


class Scope(Enum):
    """The entities on which one kind of caller may use an RPC, as a readable text."""

    NOTHING = "-"
    ANY = "all"
    OWN_USER = "own user's"
    OWN_TREE = "own tree's"
    BELOW = "below itself"
    ITSELF = "as itself"


Request = Any  # a message of the RPC; each kind has its own fields
About = Callable[[Principal, Request], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Rule:
    """The callers that one RPC allows.

    Args:
        action: A readable name of the RPC, e.g. "stop jobs".
        about: The ids in a request that the scopes apply to: "/user", "/user/job...", an attempt or a worker. None: the
            RPC is not about a user's entity, or its messages arrive in a stream and the servicer calls `authorize`.
    """

    action: str
    admin: Scope = Scope.ANY
    user: Scope = Scope.NOTHING
    job: Scope = Scope.NOTHING
    worker: Scope = Scope.NOTHING
    join: Scope = Scope.NOTHING
    about: About | None = None

    def scope(self, kind: PrincipalKind) -> Scope:
        """Return the scope for this kind of caller."""
        scope: Scope = getattr(self, kind.name.lower())
        return scope


def _field(name: str) -> About:
    return lambda _, request: (getattr(request, name),)


def _nothing(_: Principal, request: Request) -> Iterable[str]:
    del request
    return ("",)


def _submitted(_: Principal, request: Request) -> Iterable[str]:
    return (request.spec.job_id,)


def _waited_for(_: Principal, request: Request) -> Iterable[str]:
    ids: Iterable[str] = request.job_ids
    return ids


def _listed(principal: Principal, request: Request) -> Iterable[str]:
    # A list of everything shows a job what is its user's.
    return (request.prefix,) if request.prefix else (f"/{principal.user}",)


def _endpoints(principal: Principal, request: Request) -> Iterable[str]:
    """Return the namespaces of the names. A leaf's namespace is the given job, or else the caller's job, if any."""
    if request.name.startswith("/"):
        return (request.name,)
    namespace = request.namespace or principal.job_id
    return (namespace,) if namespace else ()


def _below(_: Principal, request: Request) -> Iterable[str]:
    return (request.prefix,) if request.prefix else ()


def _watched(principal: Principal, request: Request) -> Iterable[str]:
    return (*_below(principal, request), *_endpoints(principal, request))


def _inspected(_: Principal, request: Request) -> Iterable[str]:
    return (request.target,) if request.target.startswith("/") else ()  # others are for admins: see the servicer


def _user(principal: Principal, request: Request) -> Iterable[str]:
    return (f"/{request.user or principal.user}",)


_OWN: Final = {"user": Scope.OWN_USER, "job": Scope.OWN_USER}

RULES: Final[dict[str, Rule]] = {
    "JobService/SubmitJob": Rule("submit jobs", user=Scope.OWN_USER, job=Scope.BELOW, about=_submitted),
    "JobService/GetJob": Rule("read jobs", **_OWN, about=_field("job_id")),
    "JobService/WaitJobs": Rule("read jobs", **_OWN, about=_waited_for),
    # What is unpickled there runs with the caller's rights: no other user's key is given out.
    "JobService/GetException": Rule("read exceptions", admin=Scope.OWN_USER, **_OWN, about=_field("job_id")),
    "JobService/GetResult": Rule("read results", admin=Scope.OWN_USER, **_OWN, about=_field("job_id")),
    "JobService/ListJobs": Rule("list jobs", user=Scope.ANY, job=Scope.OWN_USER, about=_listed),
    "JobService/ListTasks": Rule("read jobs", **_OWN, about=_field("job_id")),
    "JobService/GetTask": Rule("read jobs", **_OWN, about=_field("task_id")),
    "JobService/StopJob": Rule("stop jobs", user=Scope.OWN_USER, job=Scope.OWN_TREE, about=_field("job_id")),
    "JobService/HoldJob": Rule("hold jobs", user=Scope.OWN_USER, job=Scope.OWN_TREE, about=_field("job_id")),
    "JobService/RequeueJob": Rule("requeue jobs", user=Scope.OWN_USER, job=Scope.OWN_TREE, about=_field("job_id")),
    "JobService/UpdateJob": Rule("update jobs", user=Scope.OWN_USER, job=Scope.OWN_TREE, about=_field("job_id")),
    "JobService/FetchLogs": Rule("read logs", **_OWN, about=_field("id")),
    # Each call in a session is subject to the rule of its own RPC, a watch to that of WaitJobs.
    "ClientService/Session": Rule("make many calls in a stream", user=Scope.ANY, job=Scope.ANY),
    "BlobService/FindMissingBlobs": Rule("send files", user=Scope.ANY, job=Scope.ANY, worker=Scope.ANY),
    "BlobService/UploadBlobs": Rule("send files", user=Scope.ANY, job=Scope.ANY, worker=Scope.ANY),
    "BlobService/FetchBlobs": Rule("fetch files", worker=Scope.ANY),
    "ClusterService/Status": Rule("see the cluster", user=Scope.ANY, job=Scope.ANY),
    "ClusterService/Query": Rule("query the database", user=Scope.ANY),
    "ClusterService/Shutdown": Rule("stop the cluster"),
    "ClusterService/CordonWorker": Rule("cordon workers"),
    "ClusterService/RemoveWorker": Rule("remove workers"),
    "ClusterService/UncordonWorker": Rule("uncordon workers"),
    "ClusterService/CreateSlice": Rule("create slices"),
    "ClusterService/DeleteSlice": Rule("delete slices"),
    "ClusterService/SetBudget": Rule("set budgets"),
    "ClusterService/ListBudgets": Rule("see budgets", user=Scope.OWN_USER, about=_user),
    "ClusterService/Checkpoint": Rule("take checkpoints"),
    "ClusterService/CreateToken": Rule("make tokens"),
    "ClusterService/ListSlices": Rule("see the cluster", user=Scope.ANY, job=Scope.ANY),
    "AccessService/Join": Rule("join the cluster", admin=Scope.NOTHING, join=Scope.ANY),
    "AccessService/CreateJoinToken": Rule("make join tokens"),
    "AccessService/ListJoinTokens": Rule("see join tokens"),
    "AccessService/RevokeJoinToken": Rule("revoke join tokens"),
    "AccessService/ListUserTokens": Rule("see users' tokens"),
    "AccessService/RevokeUserToken": Rule("revoke users' tokens"),
    "AccessService/RevokeWorker": Rule("revoke workers"),
    "EndpointService/Register": Rule(
        "register endpoints", admin=Scope.NOTHING, job=Scope.ITSELF, about=_field("attempt_id")
    ),
    "EndpointService/Unregister": Rule(
        "unregister endpoints", admin=Scope.NOTHING, job=Scope.ITSELF, about=_field("attempt_id")
    ),
    "EndpointService/Resolve": Rule("find endpoints", **_OWN, about=_endpoints),
    "EndpointService/List": Rule("find endpoints", **_OWN, about=_below),
    "EndpointService/Watch": Rule("find endpoints", **_OWN, about=_watched),
    "EndpointService/ActorKey": Rule("call actors", **_OWN, about=_user),
    "DashboardService/WatchChanges": Rule("watch the cluster", user=Scope.ANY),
    "DashboardService/CreateLoginLink": Rule("open the dashboard", user=Scope.ANY),
    "DashboardService/ControllerFigures": Rule("see the queue and the controller's figures", user=Scope.ANY),
    # It runs as the job's user: more than reading.
    "ExecService/Exec": Rule("run commands in tasks", user=Scope.OWN_USER),
    "ExecService/Inspect": Rule("look at tasks' processes", **_OWN, about=_inspected),
    "ExecService/Attach": Rule("serve commands in tasks", admin=Scope.NOTHING, worker=Scope.ITSELF),
    "WorkerService/Session": Rule("open sessions", admin=Scope.NOTHING, worker=Scope.ITSELF),
}
"""The rules by service and method, without the package's name."""

AUDITED: Final[dict[str, About]] = {
    "ClusterService/Shutdown": _nothing,
    "ClusterService/Checkpoint": _nothing,
    "ClusterService/CreateToken": _user,
    "ClusterService/CreateSlice": _field("group"),
    "ClusterService/DeleteSlice": _field("name"),
    "AccessService/Join": _field("worker_id"),
    "AccessService/CreateJoinToken": _nothing,
    "AccessService/RevokeJoinToken": _field("token_id"),
    "AccessService/RevokeUserToken": _field("token_id"),
    "AccessService/RevokeWorker": _field("worker_id"),
}
"""The calls that the history names, with their entities. Other calls that change something are events."""

_NO_RULE: Final = Rule("do this", admin=Scope.NOTHING)


def rule_of(method: str) -> Rule:
    """Return the rule of an RPC ("/iris.v1.Service/Method", or without the package). An RPC without a rule is
    refused.
    """
    return RULES.get(method.rpartition(".")[2], _NO_RULE)


def check_caller(principal: Principal, rule: Rule) -> None:
    """Raise Denied if this kind of caller may never call an RPC."""
    if rule.scope(principal.kind) is Scope.NOTHING:
        raise Denied(f"{principal} may not {rule.action}: {_who(rule)}")


def authorize_all(principal: Principal, rule: Rule, request: Request) -> None:
    """Run `authorize` for every entity of a request.

    Args:
        principal: The caller.
        rule: The rule of the RPC.
        request: The request message.
    """
    if rule.about is not None:
        for entity in rule.about(principal, request):
            authorize(principal, rule, entity)


def authorize(principal: Principal, rule: Rule, entity: str) -> None:
    """Raise Denied unless the caller may use an RPC on an entity ("/user", a job, an attempt, ...).

    Args:
        principal: The authenticated caller.
        rule: The rule of the RPC.
        entity: A user ("/user"), job, task, attempt or endpoint name.

    Raises:
        Denied: The caller is not allowed to do this; the message names allowed callers. InvalidRequest: The id names no
            user.
    """
    check_caller(principal, rule)
    scope = rule.scope(principal.kind)
    if scope is Scope.ANY:
        return
    if scope is Scope.ITSELF:
        itself = principal.attempt_id if principal.kind is PrincipalKind.JOB else principal.name
        if entity != itself and not _speaks_for(principal, entity):
            raise Denied(f"{principal} may not {rule.action} as {entity!r}: each may only speak for itself")
        return
    owner = owner_of(entity)
    if _within(principal, scope, entity):
        return
    if scope is Scope.BELOW:
        raise Denied(f"{principal} may submit only jobs below itself ({principal.name}/...), not {entity}")
    others = f"user {owner} and admins" if owner else "admins"
    if scope is Scope.OWN_TREE and owner == principal.user:
        others = f"jobs of {root_of(entity)}, {others}"
    raise Denied(f"{principal} may not {rule.action} of {entity}: only {others} may")


def may_read(principal: Principal, entity: str) -> bool:
    """Return whether the caller may see a job's command, output and errors, not only its existence."""
    return _within(principal, RULES["JobService/GetJob"].scope(principal.kind), entity)


def as_attempt(principal: Principal, attempt_id: str) -> Principal:
    """Return the caller of a call with a job's token: the attempt that the call names, or the job if it names none.
    Raise Denied if the attempt belongs to another job.
    """
    if not attempt_id:
        return principal
    if not _speaks_for(principal, attempt_id):
        raise Denied(f"{principal} may not call as attempt {attempt_id!r}: that is none of its own")
    return Principal(principal.kind, principal.name, AttemptId(attempt_id))


def check_live(principal: Principal, view: ClusterView) -> None:
    """Check that the token's job or attempt has not ended. A process may outlive its attempt. A preempted one may call
    until it has ended.

    Raises:
        Denied: The job or attempt has ended.
        Unavailable: The attempt counts as lost, and may become current again when its worker reconnects.
    """
    if principal.kind is not PrincipalKind.JOB:
        return
    job = view.jobs.get(JobId(principal.name))
    if job is None or job.state.is_terminal:
        how = "is not known" if job is None else f"has ended ({job.state.word})"
        raise Denied(f"{principal} {how}, so its token is no longer valid")
    if principal.attempt_id:
        task, number = view.find_attempt(principal.attempt_id)
        is_over = task is None or task.attempt != number or not task.state.is_live
        if is_over and not has_grace(view, principal.attempt_id):
            lost = view.lost.get(principal.attempt_id)
            if lost is not None and lost.may_return and task is not None and task.state is not TaskState.RUNNING:
                raise Unavailable(
                    f"attempt {principal.attempt_id} was given up while its host was out of reach; whether it goes on "
                    "is decided once its worker is heard"
                )
            raise Denied(f"attempt {principal.attempt_id} is over, so its token is no longer valid")


def owner_of(entity: str) -> str:
    """Return the user in an id ("/ann/job/0": ann). Raise InvalidRequest for an id without one."""
    head, _, rest = entity.partition("/")
    user = rest.partition("/")[0]
    if head or not user:
        raise InvalidRequest(f"{entity!r} is not a job id or task id; the form is /user/name[/child...][/index]")
    return user


def root_of(entity: str) -> str:
    """Return the root job of an entity ("/ann/job/child/0": "/ann/job")."""
    return "/".join(entity.split("/", 3)[:3])


def _within(principal: Principal, scope: Scope, entity: str) -> bool:
    if scope is Scope.ANY:
        return True
    if scope is Scope.OWN_USER:
        return owner_of(entity) == principal.user
    if scope is Scope.OWN_TREE:
        return root_of(entity) == root_of(principal.name)
    return scope is Scope.BELOW and entity.startswith(f"{principal.name}/")


def _speaks_for(principal: Principal, attempt_id: str) -> bool:
    """Return whether a job's token, which names no attempt, belongs to the attempt's job."""
    if principal.kind is not PrincipalKind.JOB or principal.attempt_id:
        return False
    return attempt_id.rpartition(":")[0].rpartition("/")[0] == principal.name


def _who(rule: Rule) -> str:
    kinds = [kind for kind in PrincipalKind if rule.scope(kind) is not Scope.NOTHING]
    if kinds == [PrincipalKind.ADMIN]:
        return f"only {ADMIN_WORDS} may"
    *most, last = [f"{kind.word}s" for kind in kinds] or ["nobody"]
    return f"only {', '.join(most)}{' and ' if most else ''}{last} may"
