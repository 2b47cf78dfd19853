# Runs the cluster's controller on this machine, as a service where there is systemd.
state=/var/lib/iris
if [ -n "${IRIS_BOOT_DIR:-}" ]; then state="$top/state"; fi

add_extras() {
    [ -e "$place/extras" ] && return
    local wheel extras=()
    for wheel in "${wheels[@]}"; do
        case "$wheel" in
            marin_iris-*) extras+=("marin-iris[gcp,dashboard] @ file://$place/$wheel") ;;
            marin_rigging-*) extras+=("marin-rigging[gcs,web] @ file://$place/$wheel") ;;
        esac
    done
    "$place/uv" pip install --quiet --python "$place/venv/bin/python" --constraints "$place/constraints.txt" \
        "${extras[@]}" && touch "$place/extras"
}

prepare() { add_extras && folder="$file_folder" fetch "$file" && mv "$place/$file" "$top/$file"; }

pause=5
until words=$(umask 077; prepare 2>&1); do
    printf '%s\n' "$words"
    phase "failed: cannot prepare the controller: $(one_line <<<"$words"); next try in $pause s"
    sleep "$pause"
    pause=$((pause < 60 ? pause * 2 : 120))
done
serve=(--config "$top/$file" --host 0.0.0.0 --port "$port" --state-dir "$state")
phase starting

if [ -z "${IRIS_BOOT_DIR:-}" ] && [ -d /run/systemd/system ]; then
    unit=/etc/systemd/system/iris-controller.service
    rm -f "$unit"
    words=$({ "$iris" cluster controller install-service "${serve[@]}" && systemctl daemon-reload &&
        systemctl enable iris-controller && systemctl restart iris-controller; } 2>&1) ||
        phase "failed: the service iris-controller does not start: $(one_line <<<"$words")"
    # What the service says is in the journal: the console shows its beginning.
    timeout 600 journalctl --unit iris-controller --follow --lines 0 --output cat
    exit 0
fi

pause=1
while true; do
    "$iris" cluster controller serve "${serve[@]}" 9>&-
    echo "iris: the controller has ended ($?); next start in $pause s"
    sleep "$pause"
    pause=$((pause < 60 ? pause * 2 : 60))
done
