#!/usr/bin/env bash
# Open a tmux session with a connection to the dashboard of a Ray cluster in one pane and a shell in the other.
#
#   infra/marin-tmux.sh [CLUSTER_FILE]        default: infra/marin-cluster.yaml
#
# An open session is attached to again. Both panes are in the repository's root; the shell has RAY_ADDRESS set. If `conda`
# has an environment "marin" (or the one that MARIN_CONDA_ENV names), it is activated in both; else .venv, if there is one.
# MARIN_TMUX_SESSION is the session's name (marin), MARIN_TMUX_ARGS goes to tmux (e.g. "-L name" for a server of its own),
# MARIN_DASHBOARD_PORT is the port of the dashboard here (8265); with MARIN_TMUX_DETACHED=1 the session is only made.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
file=${1:-infra/marin-cluster.yaml}
session=${MARIN_TMUX_SESSION:-marin}
port=${MARIN_DASHBOARD_PORT:-8265}
environment=${MARIN_CONDA_ENV:-marin}
read -r -a tmux_command <<<"tmux ${MARIN_TMUX_ARGS:-}"

fail() { echo "marin-tmux: $*" >&2; exit 1; }

command -v tmux >/dev/null || fail "tmux is not installed"
case $file in /*) path=$file ;; *) path=$root/$file ;; esac
[ -f "$path" ] || fail "no cluster file $file; files are: $(cd "$root" && echo infra/marin-*.yaml)"

attach() {
    [ -n "${MARIN_TMUX_DETACHED:-}" ] && exit 0
    if [ -n "${TMUX:-}" ]; then exec "${tmux_command[@]}" switch-client -t "=$session"; fi
    exec "${tmux_command[@]}" attach-session -t "=$session"
}

if "${tmux_command[@]}" has-session -t "=$session" 2>/dev/null; then
    attach
fi

activate=""
if command -v conda >/dev/null && conda env list 2>/dev/null | awk '{print $1}' | grep -qx -- "$environment"; then
    activate="eval \"\$(conda shell.bash hook)\" && conda activate $(printf %q "$environment")"
elif [ -f "$root/.venv/bin/activate" ]; then
    activate="source $(printf %q "$root/.venv/bin/activate")"
fi

# Panes run bash, so that these lines mean the same whatever the user's shell is.
pane() { printf 'exec bash --rcfile %q -i' "$1"; }
folder=$(mktemp -d)
for name in dashboard shell; do
    {
        echo '[ -f ~/.bashrc ] && source ~/.bashrc'
        echo "$activate"
        echo "export RAY_ADDRESS=http://127.0.0.1:$port"
    } >"$folder/$name"
done
# A connection that ends leaves a shell in which to read why.
printf 'python -m marin.run.cluster dashboard --port %q --cluster %q\n' "$port" "$file" >>"$folder/dashboard"
# The last pane to start removes what both have read.
printf 'sleep 1; rm -rf %q\n' "$folder" >>"$folder/shell"

"${tmux_command[@]}" new-session -d -s "$session" -n marin -c "$root" "$(pane "$folder/dashboard")"
"${tmux_command[@]}" split-window -t "=$session:marin" -v -c "$root" "$(pane "$folder/shell")"
attach
