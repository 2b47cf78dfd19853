"""Converts a user's plan into a request: name, inherited environment, bundle, pickled callable."""

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from iris.client.connection.calls import JobCalls
from iris.client.connection.connection import Connection
from iris.client.connection.wire import RequestWriter
from iris.client.errors import JobAlreadyExists
from iris.client.job_env import JobEnv
from iris.client.plan import JobPlan, checked_plans, spec_of
from iris.client.submission.bundle import blob_digest, upload_bundle, upload_messages
from iris.client.submission.job_workspace import JobWorkspace
from iris.cluster.types import (
    Entrypoint,
    EnvironmentSpec,
    ExistingJobPolicy,
    JobName,
)
from iris.domain.ids import JobId
from iris.domain.job_spec import JobSpec
from iris.domain.resources import SLICE_ATTRIBUTE, slice_hosts, whole_slices
from iris.domain.runtime import NO_IMAGE, PackageSource, TaskRuntime
from iris.rpc.generated import iris_pb2 as pb
from iris.user_name import default_user
from rigging.arguments import check_text, check_type
from rigging.errors import AlreadyExists, Conflict, InvalidRequest, MarinError
from rigging.text.quantities import check_count

FORWARDED_PREFIX: Final = "MARIN_"
"""Variables that every job gets from its submitter, unless it sets them, so that data locations stay the same."""

_WITHOUT_PACKAGES: Final = (PackageSource.NONE, PackageSource.SUBMITTER)

INLINE_PAYLOAD_BYTES: Final = 1024 * 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Submission:
    """A stored job, and the key that identifies its submission."""

    job_id: str
    key: str


class Submitter:
    """Submits jobs for one client. Packs the workspace once, at the first submission.

    Args:
        connection: The connection to the cluster.
        workspace: The workspace; None follows `inherit`.
        user: The owner of the jobs; None for the user of this process.
        inside: The job in which this process runs.
        warn: Called with warnings.
        notice: Called with notices.
        inherit: Whether jobs without a workspace inherit that of `inside`.
        same_machine: Whether the cluster's workers see this machine's files.
        environ: The variables to read; None for this process's.
        calls: Makes the calls; None to use `connection`.
    """

    def __init__(
        self,
        connection: Connection,
        workspace: Path | None,
        *,
        user: str | None = None,
        inside: JobEnv | None = None,
        warn: Callable[[str], None] | None = None,
        notice: Callable[[str], None] | None = None,
        inherit: bool = True,
        same_machine: bool = False,
        environ: Mapping[str, str] | None = None,
        calls: JobCalls | None = None,
    ) -> None:
        self._connection = connection
        self._calls = calls or JobCalls(connection)
        self._user = user
        self._login = ""
        self._writer = RequestWriter()
        self._inside = inside
        self._parent = inside if workspace is None and inherit else None
        self._warn = warn or logger.warning
        self._environ = os.environ if environ is None else environ
        self._workspace = JobWorkspace(
            connection,
            workspace,
            self._parent,
            same_machine=same_machine,
            warn=self._warn,
            notice=notice or logger.info,
            environ=self._environ,
        )

    def submit(self, plan: JobPlan, *, existing: ExistingJobPolicy | str, idempotency_key: str | None) -> "Submission":
        """Submit one job like `submit_many`, and raise if it is refused. Raise like `IrisClient.submit`.

        Args:
            plan: The job.
            existing: What to do if a live job has the same name.
            idempotency_key: Submissions with the same key create one job; None for a new key each time.
        """
        (result,) = self.submit_many([plan], existing=existing, idempotency_key=idempotency_key)
        if isinstance(result, MarinError):
            raise result
        return result

    def submit_many(
        self, plans: Sequence[JobPlan], *, existing: ExistingJobPolicy | str, idempotency_key: str | None = None
    ) -> list["Submission | MarinError"]:
        """Submit jobs and return the outcome of each. All are validated before the first is sent.

        Args:
            plans: The jobs.
            existing: What to do if a live job has the same name.
            idempotency_key: The key of a single plan.

        Raises:
            InvalidRequest: A job can never succeed on any cluster. No job was sent.
            ControllerUnreachable: Some jobs may have been submitted.
        """
        policy = _policy(existing)
        if idempotency_key is not None:
            check_text(idempotency_key, "idempotency_key")
        prepared = [self._prepare(plan, policy, idempotency_key) for plan in checked_plans(plans)]
        messages = [message for message, _ in prepared]
        replies = self._calls.submit(messages)
        if any(isinstance(reply, InvalidRequest) for reply in replies):
            # What was uploaded before may have been removed, or damaged, on the controller since.
            refused = [place for place, reply in enumerate(replies) if isinstance(reply, InvalidRequest)]
            if self._upload_again([prepared[place] for place in refused]):
                for place, reply in zip(refused, self._calls.submit([messages[n] for n in refused]), strict=True):
                    replies[place] = reply
        return [_result(message, reply) for message, reply in zip(messages, replies, strict=True)]

    def _prepare(
        self, plan: JobPlan, policy: ExistingJobPolicy, idempotency_key: str | None
    ) -> tuple[pb.SubmitJobRequest, bytes]:
        """Return the request and the pickled callable. The request's blobs are stored on the cluster or inside the
        message.
        """
        payload = pickle_callable(plan.entrypoint)
        digest = blob_digest(payload) if payload else ""
        spec = self._spec(plan, digest)
        inline = [payload] if 0 < len(payload) <= INLINE_PAYLOAD_BYTES else []
        if payload and not inline and self._connection.missing_blobs([digest]):
            self._connection.upload_blobs(lambda: upload_messages([(digest, payload)]))
        message = self._writer.write(
            spec,
            names_band=plan.priority_band is not None,
            idempotency_key=idempotency_key or os.urandom(16).hex(),
            inline_blobs=inline,
            existing=policy,
        )
        return message, payload

    def _upload_again(self, refused: Sequence[tuple[pb.SubmitJobRequest, bytes]]) -> bool:
        """Send missing parts of the bundle and payloads, and return whether any were missing."""
        sent = 0
        payloads = {message.spec.entrypoint.callable.payload_digest: data for message, data in refused if data}
        for digest in self._connection.missing_blobs(list(payloads)) if payloads else ():
            self._connection.upload_blobs(partial(upload_messages, [(digest, payloads[digest])]))
            sent += 1
        if self._workspace.bundle is not None:
            with contextlib.suppress(Conflict):  # a file has changed since: the refusal says what is wrong
                sent += upload_bundle(self._connection, self._workspace.bundle)
        return sent > 0

    def _spec(self, plan: JobPlan, payload_digest: str) -> JobSpec:
        """Return the job of a plan. Its bundle is then stored on the cluster."""
        return spec_of(
            plan,
            JobId(str(self.job_name(plan.name, plan.user, plan.parent))),
            payload_digest=payload_digest,
            environment=self.environment(plan.environment),
            replicas=self._whole_slices(plan),
            runtime=lambda: self._runtime(plan),
            bundle_digest=self.bundle_digest,
        )

    def _runtime(self, plan: JobPlan) -> TaskRuntime:
        runtime = self._workspace.runtime(
            is_callable=not plan.entrypoint.argv, working_dir=plan.working_dir, extras=plan.environment.extras
        )
        if plan.image not in (None, "", NO_IMAGE) and plan.entrypoint.argv and runtime.packages in _WITHOUT_PACKAGES:
            runtime = TaskRuntime(runtime.working_dir, runtime.project_dir)  # the image has the programs
        return runtime if plan.image is None else replace(runtime, image=plan.image or NO_IMAGE)

    def _whole_slices(self, plan: JobPlan) -> int:
        """Return the number of tasks, rounded up to whole slices for a gang on TPU slices."""
        replicas = check_count(plan.replicas, "replicas", least=1)
        device, group = plan.resources.device, plan.coscheduling
        if device is None:
            return replicas
        hosts = slice_hosts(device)
        if group is None and hosts is not None and hosts > 1 and not plan.reserve:
            self._warn(
                f"{plan.name}: a slice of {device.variant} has {hosts} VMs, and each task gets one VM of any slice; "
                f"a gang (coscheduling by {SLICE_ATTRIBUTE!r}) gets whole slices"
            )
        if group is None or group.group_by != SLICE_ATTRIBUTE:
            return replicas
        whole = whole_slices(device, replicas)
        if whole != replicas:
            self._warn(f"{plan.name}: {replicas} tasks become {whole}, to fill whole slices of {device.variant}")
        return whole

    def job_name(self, name: str, user: str | None = None, parent_id: str | None = None) -> JobName:
        """Return the full name: below the named parent, the current job, or the user.

        Args:
            name: The last part of the name.
            user: The owner; None for the client's user.
            parent_id: The parent job; None for the current job, if there is one.
        """
        if "" in (user, self._user):
            raise InvalidRequest("user is empty; give a name, or None for your own")
        if parent_id is not None:
            return JobName.from_string(parent_id).child(name)
        if self._inside is None:
            return JobName.root(user or self._default_user(), name)
        parent = JobName.from_string(self._inside.job_id)
        if user is not None and user != parent.user:
            raise InvalidRequest(f"user {user!r}: a job submitted from inside {parent} belongs to {parent.user!r}")
        return parent.child(name)

    def prefix(self) -> str:
        """Return the prefix of the jobs' names, without the trailing "/"."""
        return self._inside.job_id if self._inside else f"/{self._default_user()}"

    def _default_user(self) -> str:
        # The password database is asked once: reading it takes longer than all else about a submission.
        self._login = self._login or self._user or default_user()
        return self._login

    def environment(self, wanted: EnvironmentSpec) -> EnvironmentSpec:
        """Return the job's environment: this process's MARIN_* variables, and inside a job that job's packages."""
        # By name first: reading all values of the environment takes longer than all else about a submission.
        forwarded = {name: self._environ[name] for name in self._environ if name.startswith(FORWARDED_PREFIX)}
        inherit = self._parent
        return EnvironmentSpec(
            pip_packages=tuple(wanted.pip_packages) or (inherit.pip_packages if inherit else ()),
            env_vars={**forwarded, **wanted.env_vars},
            extras=tuple(wanted.extras) or (inherit.extras if inherit else ()),
        )

    def bundle_digest(self) -> str:
        """Return the digest of the workspace's bundle after sending its missing parts; empty without a workspace."""
        return self._workspace.bundle_digest()


def _result(message: pb.SubmitJobRequest, reply: pb.SubmitJobResponse | MarinError) -> Submission | MarinError:
    if isinstance(reply, AlreadyExists):
        return JobAlreadyExists(str(reply))
    return reply if isinstance(reply, MarinError) else Submission(reply.job_id, message.idempotency_key)


def pickle_callable(entrypoint: Entrypoint) -> bytes:
    """Return the cloudpickle of (fn, args, kwargs); empty for a command. Raise InvalidRequest if it cannot be
    pickled.
    """
    if entrypoint.fn is None:
        return entrypoint.pickled
    import pickle

    import cloudpickle

    try:
        payload: bytes = cloudpickle.dumps((entrypoint.fn, entrypoint.args, dict(entrypoint.kwargs)))
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidRequest(
            f"{entrypoint.display} cannot be sent to another process: {error}; "
            "pass plain values, and open files, locks and connections inside the function"
        ) from error
    return payload


def chosen_policy(existing: ExistingJobPolicy | str, *, adopt: bool) -> ExistingJobPolicy:
    """Return the policy from `existing` and `adopt_existing`. Raise InvalidRequest if they contradict each other."""
    check_type(adopt, bool, "adopt_existing", "True or False")
    policy = _policy(existing)
    if adopt and policy is ExistingJobPolicy.REPLACE:
        raise InvalidRequest(f"existing {policy.value!r} and adopt_existing contradict each other; give only one")
    return ExistingJobPolicy.ADOPT if adopt else policy


def _policy(existing: ExistingJobPolicy | str) -> ExistingJobPolicy:
    try:
        return ExistingJobPolicy(existing)
    except ValueError:
        allowed = ", ".join(policy.value for policy in ExistingJobPolicy)
        raise InvalidRequest(f"existing {existing!r} is not one of {allowed}") from None
