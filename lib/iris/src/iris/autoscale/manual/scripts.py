"""Writes the shell scripts that hosts run. Pure.

All reach `sh` by its standard input, so that no process list shows what is in them. A host's files are in one
directory: `claim` says which slice the host serves, `phase` how far its start is. `lock` is held while `boot.sh` runs,
which installs iris and starts the worker whenever it ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import join, quote
from typing import Final

from iris.autoscale.boot.script import offer_options, worker_environment
from iris.autoscale.manual.claims import Claim
from iris.autoscale.model import worker_id_of
from iris.autoscale.port import SliceOrder
from iris.autoscale.rules import Platform

FIELD: Final = "iris:"
"""The beginning of the lines that are read; a login may print others."""

_PRELUDE: Final = """
set -eu
root=${IRIS_HOST_DIR:-}
[ -n "$root" ] || if [ "$(id -u)" = 0 ]; then root=/var/lib/iris-host; else root=$HOME/.iris-host; fi
runs() { [ -e "$root/lock" ] && ! flock -n "$root/lock" true; }
tell() { printf 'iris:%s %s\\n' "$1" "$2"; }
"""

_LOOK: Final = """
if [ -f "$root/claim" ]; then
  tell claim "$(cat "$root/claim")"
  tell phase "$(head -n 1 "$root/phase" 2>/dev/null || echo claimed)"
  if runs; then tell runs yes; fi
fi
"""

_CLAIM: Final = """
for tool in flock setsid; do
  command -v $tool >/dev/null || { echo "$tool is missing: install util-linux" >&2; exit 1; }
done
mkdir -p "$root"
chmod 711 "$root"
mkdir -p "$root/bin" "$root/releases/$version"
printf '%s\\n' "$claim" >"$root/claim.$$"
ln "$root/claim.$$" "$root/claim" 2>/dev/null || true
rm -f "$root/claim.$$"
tell claim "$(cat "$root/claim")"
tell root "$root"
tell machine "$(uname -s -m)"
for uv in "$(command -v uv || true)" "$root/bin/uv" "$HOME/.local/bin/uv"; do
  if [ -n "$uv" ] && [ -x "$uv" ]; then tell uv "$uv"; break; fi
done
tell files "$(ls "$root/releases/$version" | tr '\\n' ' ')"
touch "$root/releases/$version"
if [ "$(cat "$root/claim")" = "$claim" ] && ! runs; then
  ls -t "$root/releases" | tail -n +3 | while read -r old; do rm -rf "$root/releases/$old"; done
fi
"""

_IF_CLAIMED: Final = """
if ! [ -f "$root/claim" ] || [ "$(cat "$root/claim")" != "$claim" ]; then
  echo "the host does not serve this slice any more" >&2
  exit 1
fi
"""

_WRITE: Final = """
if ! runs; then
  umask 077
  rm -f "$root/phase"
  printf '%s' "$token" >"$root/join-token"
  printf '%s' "$end" >"$root/end.sh"
  printf '%s' "$boot" >"$root/boot.sh"
fi
"""

_RUN: Final = """
runs || setsid sh "$root/boot.sh" </dev/null >/dev/null 2>&1 &
"""

_BOOT: Final = """set -u
exec 9>"$root/lock"
flock -w 10 9 || exit 0
printf '%s\\n' "$$" >"$root/pid"
say() { printf '%s\\n' "$*" >"$root/phase.new" && mv "$root/phase.new" "$root/phase"; }
words() { tail -n "$2" "$1" | tr -s '[:cntrl:]' ' ' | tail -c 400; }
cd "$root"
umask 022
PATH=$PATH:/usr/local/bin:/usr/bin:/bin
export PATH UV_PYTHON_INSTALL_DIR="$root/python"
if ! [ -e "$release/installed" ]; then
  say installing
  set -- "$release"/*.whl
  [ ! -e "$release/constraints.txt" ] || set -- --constraints "$release/constraints.txt" "$@"
  { "$uv" venv --quiet --clear --python "$python" "$release/venv" &&
    "$uv" pip install --quiet --python "$release/venv/bin/python" "$@" &&
    : >"$release/installed"; } >"$root/install.log" 2>&1 9>&-
  code=$?
  if [ $code != 0 ]; then say "failed $code $(words "$root/install.log" 4)"; exit 1; fi
fi
pause=1
while :; do
  say started
  began=$(date +%s)
  ( worker ) >>"$root/worker.log" 2>&1 9>&-
  code=$?
  say "ended $code $(words "$root/worker.log" 1)"
  [ $(($(date +%s) - began)) -lt 60 ] || pause=1
  sleep $pause
  [ $pause -gt 30 ] || pause=$((pause * 2))
done
"""

_STOP: Final = """
[ -f "$root/claim" ] || { tell end ""; exit 0; }
case $(cat "$root/claim") in "$mark"*) ;; *) tell end ""; exit 0 ;; esac
printf 'stopping\\n' >"$root/phase.new" && mv "$root/phase.new" "$root/phase"
if runs && pid=$(cat "$root/pid"); then
  kill -s TERM -- "-$pid" 2>/dev/null || true
  flock -w 5 "$root/lock" true || kill -s KILL -- "-$pid" 2>/dev/null || true
fi
[ ! -e "$root/end.sh" ] || sh "$root/end.sh" >&2
rm -f "$root/boot.sh" "$root/end.sh" "$root/join-token" "$root/pid" "$root/install.log" "$root/worker.log"
rm -f "$root/lock" "$root/phase" "$root/claim"
"""

_END: Final = 'tell end ""\n'


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings with which the workers of all hosts start.

    Args:
        controller: "host:port" of the controller, as hosts reach it.
        insecure: Whether it serves without TLS beyond loopback.
        platform: Settings of workers.
        task_users: Range of uids for tasks where the user is root; empty for none.
    """

    controller: str
    insecure: bool = False
    platform: Platform = field(default_factory=Platform)
    task_users: str = ""


@dataclass(frozen=True, slots=True)
class Boot:
    """The settings with which one host starts its worker.

    Args:
        claim: What the host serves.
        order: The slice.
        root: The directory of the host's files.
        uv: The path of uv. version: The release of iris. python: The Python version.
        settings: What all hosts are started with.
    """

    claim: Claim
    order: SliceOrder = field(repr=False)
    root: str
    uv: str
    version: str
    python: str
    settings: HostSettings = field(repr=False)

    @property
    def work_dir(self) -> str:
        """The worker's directory."""
        return f"{self.settings.platform.cache_dir or self.root}/iris-worker"

    @property
    def release(self) -> str:
        """The directory of the release."""
        return f"{self.root}/releases/{self.version}"

    def boot_text(self) -> str:
        """Return the script that installs iris and keeps the worker running. It may have secrets."""
        environment = worker_environment(self.settings.platform, self.order.group)
        exports = "".join(f"  export {key}={quote(value)}\n" for key, value in environment.items())
        users = quote(self.settings.task_users)
        return (
            _variables(root=self.root, uv=self.uv, release=self.release, python=self.python)
            + f"worker() {{\n{exports}  set -- {join(worker_words(self))}\n"
            + (f'  [ "$(id -u)" != 0 ] || set -- "$@" --task-users {users}\n' if self.settings.task_users else "")
            + '  exec "$release/venv/bin/iris" worker start "$@"\n}\n'
            + _BOOT
        )

    def end_text(self) -> str:
        """Return the script that ends the worker with its tasks and removes its directory."""
        iris, work_dir = quote(f"{self.release}/venv/bin/iris"), quote(self.work_dir)
        return f"if [ -x {iris} ]; then {iris} worker stop --work-dir {work_dir} --remove\nelse rm -rf {work_dir}; fi\n"


def worker_words(boot: Boot) -> Sequence[str]:
    """Return the options of `iris worker start` for a host."""
    claim, settings = boot.claim, boot.settings
    words = ["--controller", settings.controller, "--name", worker_id_of(claim.slice, claim.number)]
    words += ["--slice", claim.slice, "--slice-index", str(claim.number), "--work-dir", boot.work_dir]
    words += ["--join-token-file", f"{boot.root}/join-token"] if boot.order.join_token else []
    return [*words, *offer_options(boot.order.group), *(["--insecure"] if settings.insecure else [])]


def look_script() -> str:
    """Return the script that tells what a host serves."""
    return _PRELUDE + _LOOK + _END


def claim_script(claim: Claim, version: str) -> str:
    """Return the script that makes a host serve a slice unless it serves another, and tells what it has and lacks."""
    return _variables(claim=claim.text, version=version) + _PRELUDE + _CLAIM + _END


def start_script(boot: Boot) -> str:
    """Return the script that begins to start a worker, once the release is there. It has secrets."""
    told = _variables(claim=boot.claim.text, boot=boot.boot_text(), end=boot.end_text(), token=boot.order.join_token)
    return told + _PRELUDE + _IF_CLAIMED + _WRITE + _RUN + _END


def again_script(claim: Claim) -> str:
    """Return the script that starts a worker that has been started before: the host was restarted."""
    return _variables(claim=claim.text) + _PRELUDE + _IF_CLAIMED + _RUN + _END


def stop_script(claim: Claim) -> str:
    """Return the script that ends the worker of a slice and removes its files; on hosts of others it does nothing."""
    return _variables(mark=claim.mark) + _PRELUDE + _STOP + _END


def fields_of(output: str) -> Mapping[str, str] | None:
    """Return what a script told; None if it did not come to its end."""
    lines = [line.removeprefix(FIELD) for line in output.splitlines() if line.startswith(FIELD)]
    fields = {key: value.strip() for key, _, value in (line.partition(" ") for line in lines)}
    return fields if "end" in fields else None


def _variables(**values: str) -> str:
    return "".join(f"{key}={quote(value)}\n" for key, value in values.items())
