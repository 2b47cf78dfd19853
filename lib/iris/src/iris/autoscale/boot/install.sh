# Installs a release of iris on a machine at Google. Repeating it changes nothing.
set -u
umask 022
export HOME="${HOME:-/root}"
top="${IRIS_BOOT_DIR:-/opt/iris}"
place="$top/$release"
iris="$place/venv/bin/iris"
metadata="http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance"
storage="${STORAGE_EMULATOR_HOST:-https://storage.googleapis.com}/storage/v1/b/$bucket/o"

# The script may be started again while it waits.
mkdir -p "$top"
exec 9>>"$top/lock"
flock -n 9 || { echo "iris: this script already runs"; exit 0; }

(umask 077; printf '%s' "$environment" >"$top/environment")
set -a
UV_PYTHON_INSTALL_DIR="$top/python"  # tasks of other users run it, too
. "$top/environment"
set +a

ask() { curl -sSf --max-time 10 -H 'Metadata-Flavor: Google' "$metadata/$1" "${@:2}"; }

tell() {
    echo "iris: $2"
    ask "guest-attributes/iris/$1" -X PUT --data-raw "$2" >/dev/null 2>&1 || true
}

phase() { tell phase "$1"; }

one_line() { LC_ALL=C tr -cs '[:print:]' ' ' | tail -c 400; }

get() {
    local answer token
    answer=$(ask service-accounts/default/token) || return
    token=$(sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p' <<<"$answer")
    # The token is in no list of processes: curl reads it from its input.
    curl -sSf --max-time 600 -K - "${@:2}" "$storage/$1?alt=media" <<<"header = \"Authorization: Bearer $token\""
}

fetch() {
    local words
    words=$(get "$folder%2F$1" -o "$place/$1" 2>&1) || { echo "$1: $words"; return 1; }
}

fetch_uv() {
    if fetch "uv-$(uname -m)"; then
        mv "$place/uv-$(uname -m)" "$place/uv" && chmod 755 "$place/uv"
    else
        curl -LsSf --max-time 600 https://astral.sh/uv/install.sh | env UV_UNMANAGED_INSTALL="$place" sh
    fi
}

install() {
    [ -e "$place/complete" ] && return
    local file
    rm -rf "$place" && mkdir -p "$place" && fetch_uv || return
    for file in constraints.txt "${wheels[@]}"; do
        fetch "$file" || return
    done
    "$place/uv" venv --quiet --python "$python" "$place/venv" &&
        "$place/uv" pip install --quiet --python "$place/venv/bin/python" --constraints "$place/constraints.txt" \
            "${wheels[@]/#/$place/}" && touch "$place/complete"
}

[ -e "$place/complete" ] || phase installing
pause=5
until words=$(install 2>&1); do
    printf '%s\n' "$words"
    phase "failed: cannot install iris $release: $(one_line <<<"$words"); next try in $pause s"
    sleep "$pause"
    pause=$((pause < 60 ? pause * 2 : 120))
done
