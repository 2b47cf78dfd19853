# Installs iris and keeps the controller running.
set -u
exec 9>"$top/lock"
flock -w 10 9 || exit 0
echo $$ >"$top/pid"
phase() { echo "iris: $1"; printf '%s\n' "$1" >"$top/phase"; }
release=$top/releases/$version
export UV_PYTHON_INSTALL_DIR="$top/python"
cd "$top"
pause=1
while true; do
    if ! [ -e "$release/installed" ]; then
        phase installing
        set -- --constraints "$release/constraints.txt"
        for wheel in "$release"/*.whl; do
            case ${wheel##*/} in
                marin_iris-*) set -- "$@" "marin-iris[ssh,gcp,dashboard] @ file://$wheel" ;;
                *) set -- "$@" "marin-rigging[web$storage] @ file://$wheel" ;;
            esac
        done
        "$uv" venv --quiet --clear --python "$python" "$release/venv" 9>&- &&
            "$uv" pip install --quiet --python "$release/venv/bin/python" "$@" 9>&- && : >"$release/installed"
    fi
    if [ -e "$release/installed" ]; then
        phase starting
        "$release/venv/bin/iris" --config "$top/$file" cluster controller serve --host 0.0.0.0 --port "$port" \
            --state-dir "$top/state" 9>&-
    fi
    code=$? why=$(tail -n 1 "$top/log" | tr -d '[:cntrl:]' | tail -c 400)
    phase "failed: it has ended ($code): ${why#iris: }; next start in $pause s"
    sleep "$pause"
    pause=$((pause < 60 ? pause * 2 : 60))
done
