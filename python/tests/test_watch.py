"""Streams: changes that go on after a break, and what happens when the daemon is gone."""

import socket
import threading
import unittest
from unittest import mock

from support import LIMIT_S, ClusterCase, Daemon, closes, reaches

import phalanx


def break_off(stream: phalanx.ChangeStream) -> None:
    """The connection breaks, as by a network."""
    stream._events._socket.shutdown(socket.SHUT_RDWR)


class Watch(ClusterCase):
    def several(self) -> None:
        """Four changes at least: each job is placed, and ends."""
        for _ in range(3):
            self.submit().wait(LIMIT_S)

    def test_changes_of_a_job(self) -> None:
        with closes(self.cluster.watch()) as changes:
            job = self.submit()
            words = []
            while "succeeded" not in words:
                change = next(changes)
                if change.job == job.id:
                    self.assertEqual(change.kind, "job")
                    self.assertGreater(change.at, 0)
                    words.append(change.what)
        self.assertLess(words.index("running"), words.index("succeeded"))

    def test_changes_of_a_node(self) -> None:
        node = self.cluster.node("a2")
        with closes(self.cluster.watch()) as changes:
            node.cordon()
            change = next(change for change in changes if change.kind == "node")
            self.assertEqual(change.node, "a2")
            node.uncordon()

    def test_resume_after_a_change_misses_nothing(self) -> None:
        with closes(self.cluster.watch()) as changes:
            self.several()
            first = next(changes)
            seen = [next(changes) for _ in range(3)]
        with closes(self.cluster.watch(after=first.id)) as again:
            self.assertEqual([next(again) for _ in range(3)], seen)

    def test_a_broken_connection_is_opened_again(self) -> None:
        with closes(self.cluster.watch()) as changes, closes(self.cluster.watch()) as other:
            changes._sleep = other._sleep = lambda seconds: None
            self.several()
            seen = [next(changes)]
            break_off(changes)
            seen += [next(changes) for _ in range(3)]
            self.assertEqual([next(other) for _ in range(4)], seen)

    def test_what_comes_after_the_call_is_seen(self) -> None:
        for _ in range(3):
            with closes(self.cluster.watch()) as changes:
                before = changes.last_id
                job = self.submit(hold=True)
                change = next(changes)
                self.assertEqual((change.kind, change.job), ("job", job.id))
                self.assertGreater(change.id, before)

    def test_too_old_a_change_is_a_reset(self) -> None:
        with closes(self.cluster.watch(after=0)) as changes:
            first = next(changes)
        self.assertEqual(first.kind, "reset")
        self.assertEqual(changes.last_id, first.id)

    def test_close_ends_the_iteration(self) -> None:
        changes = self.cluster.watch()
        changes.close()
        self.assertEqual(list(changes), [])


class Gone(unittest.TestCase):
    """The daemon stops while a client reads."""

    def setUp(self) -> None:
        self.daemon = Daemon()
        self.addCleanup(self.daemon.remove)
        self.cluster = self.daemon.connect(retries=1)
        self.addCleanup(self.cluster.close)

    def test_killed_in_the_middle_of_logs(self) -> None:
        job = self.cluster.submit("echo first; exec sleep 600", ranks=1, grace="1s")
        with closes(job.logs()) as stream:
            self.assertEqual(next(stream).line, "first")
            self.daemon.kill()
            with self.assertRaises(phalanx.Unavailable) as caught:
                next(stream)
        self.assertEqual(caught.exception.code, "broken_stream")
        with self.assertRaises(phalanx.Unavailable) as caught:
            job.refresh()
        self.assertIn("phalanx up", caught.exception.hint)
        self.daemon.start()
        self.cluster.job(job.id).cancel()
        self.assertTrue(job.wait(LIMIT_S).is_over)

    def test_watch_goes_on_after_a_restart(self) -> None:
        with closes(self.cluster.watch()) as changes:
            changes._sleep = lambda seconds: None
            self.cluster.submit("true", ranks=1).wait(LIMIT_S)
            first = next(changes)
            self.daemon.stop()
            self.daemon.start()
            job = self.cluster.submit("true", ranks=1).wait(LIMIT_S)
            while True:
                change = next(changes)
                self.assertGreaterEqual(change.id, first.id)
                if change.kind == "reset" or change.job == job.id:
                    break

    def test_watch_gives_up_in_the_end(self) -> None:
        waits = []
        with closes(self.cluster.watch()) as changes:
            changes._sleep = waits.append
            with mock.patch.object(self.cluster._transport, "_sleep", lambda seconds: None):
                self.daemon.kill()
                with self.assertRaises(phalanx.Unavailable):
                    next(changes)
        self.assertEqual(len(waits), 6)
        self.daemon.start()

    def test_a_job_outlives_the_daemon(self) -> None:
        job = self.cluster.submit("exec sleep 600", ranks=1, grace="1s")
        reaches(self.cluster, job, "running")
        self.daemon.kill()
        waiting = threading.Thread(target=job.wait, args=(LIMIT_S,))
        waiting.start()
        self.daemon.start()
        again = self.cluster.job(job.id)
        self.assertEqual(again.state, "running")
        again.cancel()
        waiting.join(LIMIT_S)
        self.assertEqual(job.view["state"], "cancelled")


if __name__ == "__main__":
    unittest.main()
