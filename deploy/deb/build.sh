#!/bin/sh
# Builds the Debian package of the daemon for one machine: build.sh PROGRAM VERSION TO.deb
# The same program gives the same bytes: files have the time SOURCE_DATE_EPOCH, or that of the last commit.
set -eu
[ $# -eq 3 ] || { echo "build.sh PROGRAM VERSION TO.deb" >&2; exit 64; }
program=$1 version=$2 to=$3
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"

put() { install -D -m "$1" "$2" "$stage/$3"; }
put 755 "$program" usr/bin/phalanx
for unit in phalanx phalanx-ranks; do
  put 644 "$root/deploy/systemd/$unit.service" "usr/lib/systemd/system/$unit.service"
done
put 644 "$here/default" etc/default/phalanx
put 644 "$root/LICENSE" usr/share/doc/phalanx/copyright
put 644 "$root/docs/one-machine.md" usr/share/doc/phalanx/one-machine.md
for script in postinst prerm postrm; do put 755 "$here/$script" "DEBIAN/$script"; done
echo /etc/default/phalanx > "$stage/DEBIAN/conffiles"
mkdir -p "$stage/usr/share/bash-completion/completions" "$stage/usr/share/zsh/vendor-completions"
"$program" completion bash > "$stage/usr/share/bash-completion/completions/phalanx"
"$program" completion zsh > "$stage/usr/share/zsh/vendor-completions/_phalanx"
"$program" man --into "$stage/usr/share/man/man1"
gzip -9n "$stage"/usr/share/man/man1/*.1
chmod 644 "$stage"/usr/share/man/man1/*
put 644 "$root/docs/slurm.md" usr/share/doc/phalanx/slurm.md

# The oldest C library that has all that the program links to; a static program needs none.
glibc=$(grep -aoE 'GLIBC_2\.[0-9]+' "$program" | sort -uV | tail -n 1 | cut -d_ -f2)
depends=${glibc:+libc6 (>= $glibc), libgcc-s1}
{
  echo "Package: phalanx"
  echo "Version: $version"
  echo "Architecture: $(dpkg --print-architecture)"
  echo "Maintainer: the Phalanx maintainers <phalanx@localhost>"
  echo "Installed-Size: $(du -sk "$stage" | cut -f1)"
  [ -z "$depends" ] || echo "Depends: $depends"
  echo "Section: admin"
  echo "Priority: optional"
  echo "Description: topology-aware gang scheduler for the GPUs of one machine"
  echo " Phalanx starts distributed jobs whole, puts their ranks where they talk fastest,"
  echo " shares GPUs fairly, preempts without losing work, and keeps jobs running when"
  echo " hardware fails. This package runs it as a service for all users of a machine."
} > "$stage/DEBIAN/control"
chmod 644 "$stage/DEBIAN/control" "$stage/DEBIAN/conffiles"

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zzstd --build "$stage" "$to" >/dev/null
