#!/bin/bash
# boot.sh FOLDER NAME HIDDEN VISIBLE: PID 1 of a machine, in namespaces of its own. The machine is gone, with all that runs
# on it, when its input ends.
#   FOLDER   what is private to it: tmp, root, opt, home, bin, passwd, hosts, resolv.conf, sshd_config
#   HIDDEN   folders of this computer that it has its own of, by `:`
#   VISIBLE  folders of this computer that it sees all the same, by `:`; they cannot be written to
set -eu
folder=$1 name=$2
IFS=: read -ra hidden <<< "$3"
IFS=: read -ra visible <<< "$4"
mount --make-rprivate /
for each in "${visible[@]}"; do
    for top in "${hidden[@]}"; do
        if [[ $each == "$top"/* ]]; then
            inside="$folder$each"
            mkdir -p "$inside"
            mount --bind "$each" "$inside"
            mount -o remount,bind,ro "$inside"
        fi
    done
done
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/sshd /run/machine/own
mount --rbind "$folder" /run/machine/own  # some of what is hidden next may be above it
folder=/run/machine/own
mount -t tmpfs -o size=16g shm /dev/shm
mount --bind "$folder/shared" /srv
for file in passwd hosts resolv.conf; do mount --bind "$folder/$file" "/etc/$file"; done
mount --bind "$folder/bin" /usr/local/bin
cp "$folder/sshd_config" "$folder/host_key" "$folder/hardware" /run/machine/
printf '%s\n' "$3" > /run/machine/hidden
printf '%s\n' "$4" > /run/machine/visible
for top in "${hidden[@]}"; do mount --rbind "$folder$top" "$top"; done
umount --lazy /run/machine/own
cd /
hostname "$name"
ip link set lo up
/usr/sbin/sshd -f /run/machine/sshd_config -E /tmp/sshd.log
echo ready
cat > /dev/null
