# Says `ok WHAT` or `not WHAT` for each thing that is to hold. Runs under the systemd of boot.sh.
export PHALANX_STATE=/var/lib/phalanx HOME=/root

# `ok` once the command succeeds, for it may take a moment.
holds() {
  what=$1
  shift
  for _ in $(seq 200); do
    if "$@" >/dev/null 2>&1; then
      echo "ok $what"
      return
    fi
    sleep 0.1
  done
  echo "not $what"
  systemctl status phalanx phalanx-ranks --no-pager --lines=20 2>&1
}
state() { phalanx get "$1" -o json | grep -q "\"state\": *\"$2\""; }
rank() { pgrep -f 'sleep 98765' | head -n 1; }
pid() { systemctl show -p MainPID --value phalanx; }
same_rank() { [ -n "$first" ] && [ "$(rank)" = "$first" ] && state sleeper running; }
another_daemon() { [ "$(pid)" != 0 ] && [ "$(pid)" != "$before" ] && phalanx ps; }
in_unit_of_ranks() { grep -q 'pids:.*/phalanx-ranks.service/phalanx/\|^0::.*/phalanx-ranks.service/phalanx/' "/proc/$(rank)/cgroup"; }
nobody() { [ -z "$(rank)" ]; }
are_inactive() { ! systemctl is-active phalanx && ! systemctl is-active phalanx-ranks; }

dpkg -i /mnt/phalanx.deb >/dev/null 2>&1
holds 'the package starts the daemon' phalanx nodes
holds 'it is enabled for the next boot' systemctl is-enabled phalanx
phalanx submit --cpus 1 --name sleeper -- sleep 98765 >/dev/null
holds 'a job runs' state sleeper running
first=$(rank)
holds 'its rank is in the unit of ranks' in_unit_of_ranks

before=$(pid)
systemctl restart phalanx
holds 'a restart is another daemon' another_daemon
holds 'the rank goes on over a restart' same_rank
before=$(pid)
kill -9 "$before"
holds 'a killed daemon is started again' another_daemon
holds 'the rank goes on over a kill' same_rank
before=$(pid)
kill -ABRT "$before"
holds 'a daemon that aborted is started again' another_daemon
holds 'the rank goes on over an abort' same_rank
before=$(pid)
dpkg -i /mnt/phalanx.deb >/dev/null 2>&1
holds 'an upgrade is another daemon' another_daemon
holds 'the rank goes on over an upgrade' same_rank

systemctl stop phalanx
holds 'the rank goes on while the daemon is stopped' [ "$(rank)" = "$first" ]
systemctl start phalanx
holds 'the daemon takes the rank over' same_rank
systemctl stop phalanx-ranks
holds 'to stop the unit of ranks ends them' nobody
holds 'and stops the daemon' are_inactive
systemctl start phalanx
holds 'the job is known to have ended' state sleeper failed

phalanx submit --cpus 1 --name last -- sleep 98765 >/dev/null
holds 'another job runs' state last running
dpkg -r phalanx >/dev/null 2>&1
holds 'to remove the package ends all ranks' nobody
holds 'and both units' are_inactive
holds 'what the jobs left stays' [ -e /var/lib/phalanx/history.db ]
echo done
