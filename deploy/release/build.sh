#!/usr/bin/env bash
# Writes everything that a release consists of into a folder: build.sh VERSION PROGRAM STATIC_PROGRAM FOLDER
# PROGRAM links to the C library of the machine that built it, and loads NVML; STATIC_PROGRAM runs on every Linux, and cannot.
# The same programs give the same bytes: files have the time SOURCE_DATE_EPOCH, or that of the last commit.
set -euo pipefail
# Modes of files are in the archives.
umask 022
[ $# -eq 4 ] || { echo "build.sh VERSION PROGRAM STATIC_PROGRAM FOLDER" >&2; exit 64; }
version=$1 program=$2 static=$3 to=$4
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
commit=$(git -C "$root" rev-parse HEAD)
machine=$(uname -m)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$to"
to=$(cd "$to" && pwd)
rm -f "$to"/phalanx* "$to/SHA256SUMS"

# A deterministic archive of one folder of the stage.
pack() {
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$stage" -c "$1" | gzip -9n > "$to/$2"
}

# What both programs have beside them.
mkdir -p "$stage/share/man/man1" "$stage/share/completions"
"$program" man --into "$stage/share/man/man1"
for shell in bash zsh fish; do
  "$program" completion "$shell" > "$stage/share/completions/phalanx.$shell"
done

# The program with what a person needs beside it.
bundle() {
  local name=phalanx-$version-$machine-$1
  install -D -m 755 "$2" "$stage/$name/bin/phalanx"
  install -D -m 644 -t "$stage/$name" "$root/LICENSE" "$root/README.md" "$root/CHANGELOG.md"
  cp -r "$stage/share" "$stage/$name/share"
  pack "$name" "$name.tar.gz"
}

bundle linux-gnu "$program"
bundle linux-static "$static"
"$root/deploy/deb/build.sh" "$program" "$version" "$to/phalanx_${version}_$(dpkg --print-architecture).deb"
cp -r "$root/deploy/chart/phalanx" "$stage/phalanx"
pack phalanx "phalanx-chart-$version.tgz"
git -C "$root" archive --format=tar --prefix="phalanx-$version/" HEAD | gzip -9n > "$to/phalanx-$version-source.tar.gz"

# The crates of the program, as CycloneDX; `make release` says how to get the tool. It writes a file beside each manifest of the
# workspace, with paths of this machine.
sbom=phalanx-$version.cdx
(cd "$root" && cargo cyclonedx --quiet --format json --spec-version 1.5 --target "$machine-unknown-linux-gnu" \
  --manifest-path crates/cli/Cargo.toml --override-filename "$sbom")
sed "s|file://$root|file:///phalanx|g" "$root/crates/cli/$sbom.json" > "$to/$sbom.json"
find "$root" -name "$sbom.json" -not -path "$root/target/*" -not -path "$to/*" -delete

# The formula of Homebrew needs an address from which the archives can be fetched.
if [ -n "${RELEASE_URL:-}" ]; then
  sha256=$(sha256sum "$to/phalanx-$version-$machine-linux-static.tar.gz" | cut -d' ' -f1)
  sed -e "s|@VERSION@|$version|" -e "s|@SHA256@|$sha256|" -e "s|@URL@|$RELEASE_URL/phalanx-$version-$machine-linux-static.tar.gz|" \
    "$here/phalanx.rb.in" > "$to/phalanx.rb"
fi

# Who built what from which sources: a statement of in-toto with the provenance of SLSA. It is not signed; whoever publishes signs it.
python3 "$here/provenance.py" "$version" "$commit" "$root" "$to" > "$stage/provenance.json"
mv "$stage/provenance.json" "$to/phalanx-$version.provenance.json"
(cd "$to" && sha256sum phalanx* > SHA256SUMS)
