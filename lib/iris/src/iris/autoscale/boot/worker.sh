# Runs the worker of this machine, as a service where there is systemd.
if get "${folder%\%2Freleases\%2F*}%2Fsecret" -o /dev/null 2>/dev/null; then
    tell warning "tasks can read the cluster's secrets in gs://$bucket: let this machine's account read only the folder releases"
fi
if [ -n "${IRIS_BOOT_DIR:-}" ]; then work="$top/worker"; fi
[ -d "$work" ] || mkdir -p -m 700 "$work"
options+=(--work-dir "$work" --join-token-file "$work/join-token")
if [ -e "$work/credential.json" ]; then
    rm -f "$work/join-token"
fi
[ -e "$work/credential.json" ] || (umask 077; printf '%s\n' "$join_token" >"$work/join-token")

if [ -z "${IRIS_BOOT_DIR:-}" ] && [ -d /run/systemd/system ]; then
    unit=/etc/systemd/system/iris-worker.service
    systemctl is-active --quiet iris-worker || phase starting
    rm -f "$unit"
    mkdir -p "$unit.d"
    printf '[Service]\nEnvironmentFile=%s\n' "$top/environment" >"$unit.d/environment.conf"
    words=$({ "$iris" worker install-service "${options[@]}" --task-users "$task_users" &&
        systemctl daemon-reload && systemctl enable --now iris-worker; } 2>&1) ||
        phase "failed: the service iris-worker does not start: $(one_line <<<"$words")"
    exit
fi

phase starting
pause=1
while true; do
    "$iris" worker start "${options[@]}" 9>&-
    echo "iris: the worker has ended ($?); next start in $pause s"
    sleep "$pause"
    pause=$((pause < 60 ? pause * 2 : 60))
done
