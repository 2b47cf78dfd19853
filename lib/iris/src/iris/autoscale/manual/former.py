"""Remembers the hosts of a cluster, so that slices on hosts that have left its file are found and ended."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict

from iris.autoscale.manual.claims import Target
from iris.domain.scale_groups import ManualTemplate, ScaleGroup
from rigging.errors import InvalidRequest
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic

_FILE = "hosts.json"


def targets_of(groups: Iterable[ScaleGroup]) -> dict[str, Target]:
    """Return the hosts of scale groups, by address."""
    return {
        host: Target(host, template.ssh_user, template.ssh_key_file)
        for group in groups
        if isinstance(template := group.template, ManualTemplate)
        for host in template.hosts
    }


class FormerHosts:
    """The hosts that a cluster has had, stored in its state directory.

    Args:
        state_url: The cluster's `remote_state_dir`; its state directory if it has none.
        forgets: Whether `forget` has an effect: for the cluster's controller.
    """

    def __init__(self, state_url: str, *, forgets: bool = True) -> None:
        self._url, self._forgets = f"{state_url.rstrip('/')}/{_FILE}", forgets

    def load(self) -> Mapping[str, Target]:
        """Return all stored hosts, by address. Blocks. Raise InvalidRequest for a damaged file."""
        found = read_bytes_or_none(self._url)
        try:
            return {item["address"]: Target(**item) for item in json.loads(found or b"[]")}
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidRequest(f"{self._url} is damaged ({error}); remove it") from None

    def add(self, targets: Mapping[str, Target]) -> None:
        """Store hosts of a cluster file. Call it before any of them serves a slice. Blocks."""
        known = self.load()
        self._save(known, {**known, **targets})

    def forget(self, hosts: Collection[str]) -> None:
        """Drop hosts that serve no slice and are not in the cluster file. Blocks."""
        if self._forgets:
            known = self.load()
            self._save(known, {host: target for host, target in known.items() if host not in hosts})

    def _save(self, before: Mapping[str, Target], after: Mapping[str, Target]) -> None:
        if after != before:
            write_bytes_atomic(self._url, json.dumps([asdict(target) for target in after.values()]).encode())
