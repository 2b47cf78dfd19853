# Runs the controller of a cluster on a host that is reached by ssh. $verb: look, ready, start, stop or console.
set -eu
umask 077
root=${IRIS_HOST_DIR:-}
[ -n "$root" ] || if [ "$(id -u)" = 0 ]; then root=/var/lib/iris-host; else root=$HOME/.iris-host; fi
top=$root-controller
runs() { [ -e "$top/lock" ] && ! flock -n "$top/lock" true; }
tell() { printf 'iris:%s %s\n' "$1" "$2"; }
end() {
    if runs && pid=$(cat "$top/pid"); then
        kill -s TERM -- "-$pid" 2>/dev/null || true
        flock -w 30 "$top/lock" true || kill -s KILL -- "-$pid" 2>/dev/null || true
    fi
}

if [ -e "$top/owner" ]; then
    tell owner "$(cat "$top/owner")"
    tell phase "$(head -n 1 "$top/phase" 2>/dev/null || echo claimed)"
    ! runs || tell runs yes
fi
if [ "$verb" = ready ] || [ "$verb" = start ]; then
    if [ -e "$top/owner" ] && [ "$(cat "$top/owner")" != "$owner" ]; then
        echo "the host has the controller of another cluster, $(cat "$top/owner"): stop that one first" >&2
        exit 1
    fi
    mkdir -p "$top/bin" "$top/releases/$version"
    printf '%s\n' "$owner" >"$top/owner"
fi
case $verb in
    ready)
        tell top "$top"
        tell machine "$(uname -s -m)"
        for uv in "$(command -v uv || true)" "$top/bin/uv" "$HOME/.local/bin/uv"; do
            if [ -n "$uv" ] && [ -x "$uv" ]; then tell uv "$uv"; break; fi
        done
        tell files "$(ls "$top/releases/$version" | tr '\n' ' ')"
        ;;
    start)
        end
        touch "$top/releases/$version"
        ls -t "$top/releases" | tail -n +3 | while read -r old; do rm -rf "$top/releases/$old"; done
        printf '%s' "$content" >"$top/$file"
        printf '%s' "$boot" >"$top/boot.sh"
        export top version python file port uv storage
        setsid sh "$top/boot.sh" </dev/null >"$top/log" 2>&1 &
        ;;
    stop)
        if [ -e "$top/owner" ] && [ "$(cat "$top/owner")" = "$owner" ]; then end; rm -rf "$top"; fi
        ;;
    console)
        if [ -e "$top/log" ]; then
            tell end_at "$(wc -c <"$top/log")"
            tell log "$(tail -c "+$first" "$top/log" | tail -c 65536 | base64 | tr -d '\n')"
        fi
        ;;
esac
tell end ""
