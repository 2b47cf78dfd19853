#!/bin/bash
# Run munged, slurmctld and slurmd for each node in this mount namespace until stdin ends. Nothing is written outside $1.
# usage: unshare -m bash namespace.sh STATE NODES (STATE has debs/*.deb, slurm.conf)
set -e
state=$1 nodes=$2
end_all() {
    own=$(readlink /proc/$$/ns/mnt)
    for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        if [ "$pid" != $$ ] && [ "$(readlink "$folder/ns/mnt" 2>/dev/null)" = "$own" ]; then
            kill -9 "$pid" 2>/dev/null || true
        fi
    done
}
trap end_all EXIT
mount -t tmpfs none "$state/overlay"
for folder in usr etc var; do
    mkdir -p "$state/overlay/$folder" "$state/overlay/$folder.work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$state/overlay/$folder,workdir=$state/overlay/$folder.work" "/$folder"
done
mount -t tmpfs none /run
if ! command -v slurmctld >/dev/null; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
    # Pages of the manual and the cache of menus take most of the time.
    dpkg -i --path-exclude='/usr/share/man/*' "$state"/debs/*.deb >"$state/dpkg.log" 2>&1
fi
mkdir -p /var/spool/slurmd
# Small, so that a test can fill it.
mount -t tmpfs -o size=${nodes}m none /var/spool/slurmd
mkdir -p /etc/slurm /run/munge /var/log/munge /var/lib/munge /etc/munge
cp "$state"/slurm.conf "$state"/cgroup.conf "$state"/gres.conf /etc/slurm/
head -c 1024 /dev/urandom >/etc/munge/munge.key
chown -R root:root /etc/munge /var/log/munge /var/lib/munge /run/munge
chmod 400 /etc/munge/munge.key
chmod 700 /etc/munge /var/log/munge /var/lib/munge
chmod 755 /run/munge
for number in 0 1 2 3; do
    mknod "/run/gpu$number" c 1 3 # like /dev/null
done
munged >"$state/munged.log" 2>&1
slurmctld -c >"$state/start.log" 2>&1
for number in $(seq "$nodes"); do
    slurmd -N "node$number" >>"$state/start.log" 2>&1
done
echo started
cat >/dev/null || true
