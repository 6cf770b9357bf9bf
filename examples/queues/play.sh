#!/bin/sh
# Plays the story of two teams on eight declared GPUs with real processes: one borrows, the other takes back what is its
# own, and no more work is lost than was done since the last checkpoint.
#
#   cargo build --release -p phalanx-cli -p phalanx-examples
#   examples/queues/play.sh
#
# BIN names another folder with `phalanx` and `train`.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${BIN:-$here/../../target/release}" && pwd)
dir=$(mktemp -d)
export PHALANX_STATE="$dir/state"

phalanx() { "$bin/phalanx" "$@"; }

finish() {
  for job in speech-train vision-train; do phalanx cancel "$job" >/dev/null 2>&1 || true; done
  sleep 1
  phalanx down >/dev/null 2>&1 || true
  rm -rf "$dir"
}
trap finish EXIT

say() { printf '\n# %s\n' "$*"; }

show() {
  printf '$ phalanx %s\n' "$*"
  phalanx "$@"
}

# The jobs name `train`; ranks find it here.
submit() {
  printf '$ phalanx submit -f %s.yaml\n' "$1"
  phalanx submit -f "$here/$1.yaml" --checkpoint-dir "$dir/$1" -e PATH="$bin:/usr/bin:/bin"
}

await() { # JOB WORD: until the job's state or its reason is that word
  until phalanx get "$1" -o json | grep -q "\"$2\""; do sleep 0.2; done
}

phalanx up --detach --cluster "$here/cluster.yaml" --queues "$here/queues.yaml" >/dev/null

say "Speech borrows what vision does not use: all eight GPUs are its."
submit speech
await speech-train running
sleep 5
show queues

say "Vision comes for its four. Speech is told with SIGUSR1, saves, ends, and waits again in its old place."
submit vision
await vision-train running
show ps
show queues
show why speech-train

say "Vision is done; speech goes on from its checkpoint."
phalanx logs -f vision-train --rank 0 | tail -n 1
await speech-train running
sleep 1
show ps
phalanx logs -f speech-train --rank 0 | sed -n '1p;$p'

say "What happened, and by which rule."
show history
