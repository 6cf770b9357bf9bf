#!/bin/sh
# Boots systemd on a copy of this machine's files that is thrown away, in namespaces of its own, and runs drive.sh there:
# boot.sh OUT, a folder with phalanx.deb and drive.sh. What drive.sh says is in OUT/said.
set -eu
out=$1
if [ "${2:-}" != inside ]; then
  # A cgroup of its own in each hierarchy: systemd makes its groups inside of it.
  name=phalanx-service-$$
  groups=$(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs -printf '%h\n')
  for dir in $groups; do
    mkdir "$dir/$name" 2>/dev/null || continue
    for file in cpuset.cpus cpuset.mems; do
      if [ -e "$dir/$name/$file" ]; then cat "$dir/$file" > "$dir/$name/$file" 2>/dev/null || true; fi
    done
    echo $$ > "$dir/$name/cgroup.procs" 2>/dev/null || true
  done
  unshare --fork --pid --mount --uts --ipc --net --cgroup --kill-child "$0" "$out" inside > "$out/boot" 2>&1 || true
  for dir in $groups; do
    echo $$ > "$dir/cgroup.procs" 2>/dev/null || true
    find "$dir/$name" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
  exit 0
fi

mount --make-rprivate /
layers=$out/layers
mkdir "$layers"
mount -t tmpfs tmpfs "$layers"
mkdir "$layers/upper" "$layers/work" "$layers/root"
root=$layers/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$root"
for dir in run tmp var/lib; do mount -t tmpfs tmpfs "$root/$dir"; done
mkdir -p "$root/var/lib/systemd" "$root/var/lib/dpkg"
cp -a /var/lib/dpkg/. "$root/var/lib/dpkg/"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount --bind "$out" "$root/mnt"

# Nothing but the package, and what drives it.
units=$root/etc/systemd/system
printf '[Unit]\nDefaultDependencies=no\nWants=drive.service\n' > "$units/only.target"
cat > "$units/drive.service" <<'UNIT'
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh /mnt/drive.sh
ExecStopPost=/bin/sh -c 'exec systemctl --force --force poweroff >/dev/null 2>&1'
StandardOutput=append:/mnt/said
StandardError=inherit
UNIT
# They set the kernel, the clock or devices, which are not this copy's.
for unit in systemd-sysctl systemd-tmpfiles-setup systemd-tmpfiles-setup-dev systemd-tmpfiles-clean systemd-modules-load \
  systemd-udevd systemd-udev-trigger systemd-random-seed systemd-remount-fs systemd-timesyncd systemd-logind dbus; do
  ln -sf /dev/null "$units/$unit.service"
done
ln -sf /dev/null "$units/systemd-tmpfiles-clean.timer"
exec chroot "$root" /lib/systemd/systemd --system --unit=only.target --log-target=null
