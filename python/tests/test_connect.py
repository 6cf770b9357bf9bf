"""Addresses, tokens, and who may do what."""

import os
import socket
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from support import ClusterCase

import phalanx
from phalanx import Cluster


def names(cluster: Cluster) -> "set[str]":
    return {token["name"] for token in cluster.api.list_tokens()["items"]}


class Connect(ClusterCase):
    def test_arguments(self) -> None:
        with self.daemon.connect() as cluster:
            self.assertEqual(cluster.url, self.daemon.url)
            self.assertIn(cluster.user()["role"], ("user", "operator"))
            self.assertEqual(cluster.version()["api"], "v1")
            self.assertIn(self.daemon.url, repr(cluster))

    def test_environment(self) -> None:
        token = self.daemon.token("from-environment")
        with mock.patch.dict(os.environ, {"PHALANX_URL": self.daemon.url, "PHALANX_TOKEN": token}):
            with Cluster.connect() as cluster:
                self.assertEqual(cluster.url, self.daemon.url)
        with mock.patch.dict(os.environ, {"PHALANX_TOKEN": token}, clear=True):
            with self.assertRaisesRegex(phalanx.PhalanxError, "no address"):
                Cluster.connect()

    def test_address_without_a_token(self) -> None:
        with mock.patch.dict(os.environ, {"PHALANX_URL": self.daemon.url}, clear=True):
            with self.assertRaisesRegex(phalanx.PhalanxError, "no token") as caught:
                Cluster.connect()
        self.assertIn("phalanx token create", caught.exception.hint)

    def test_socket_of_the_daemon_needs_no_token(self) -> None:
        before = names(self.cluster)
        with mock.patch.dict(os.environ, self.daemon.environment(), clear=True):
            cluster = Cluster.connect()
            self.assertEqual(cluster.url, f"unix:{self.daemon.state}/phalanx.sock")
            self.assertEqual(cluster.user()["user"], self.cluster.user()["user"])
            with ThreadPoolExecutor(4) as threads:
                self.assertEqual({len(nodes) for nodes in threads.map(lambda _: cluster.nodes(), range(8))}, {4})
            job = cluster.submit(["echo", "by the socket"], workdir=str(self.folder))
            self.assertEqual([entry.line for entry in job.logs()], ["by the socket"])
            cluster.close()
        self.assertEqual(names(self.cluster), before)
        with self.assertRaisesRegex(phalanx.PhalanxError, "closed"):
            cluster.user()
        cluster.close()

    def test_no_daemon(self) -> None:
        with mock.patch.dict(os.environ, {"PHALANX_STATE": str(self.folder)}, clear=True):
            with self.assertRaisesRegex(phalanx.Unavailable, "no daemon answers") as caught:
                Cluster.connect()
        self.assertIn("phalanx up", caught.exception.hint)
        # A daemon that was killed leaves its socket.
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(self.folder / "phalanx.sock"))
        with self.assertRaisesRegex(phalanx.Unavailable, "does not answer") as caught:
            Cluster.connect(f"unix:{self.folder}/phalanx.sock", retries=0)
        self.assertIn("phalanx up", caught.exception.hint)

    def test_bad_addresses(self) -> None:
        for url in ("127.0.0.1:7077", "ftp://127.0.0.1", "http://", "http://host/?x=1", "unix:"):
            with self.subTest(url), self.assertRaisesRegex(ValueError, "no address"):
                Cluster.connect(url, "token")

    def test_authorities_that_cannot_be_read(self) -> None:
        empty = self.folder / "empty.pem"
        empty.write_text("no certificate")
        for file in (empty, self.folder / "absent.pem"):
            with self.subTest(file), self.assertRaisesRegex(phalanx.PhalanxError, "cannot be read"):
                Cluster.connect("https://127.0.0.1:1", "token", ca_file=file)
        with mock.patch.dict(os.environ, {"PHALANX_CA_FILE": str(empty)}):
            with self.assertRaisesRegex(phalanx.PhalanxError, "cannot be read"):
                Cluster.connect("https://127.0.0.1:1", "token")

    def test_no_and_wrong_token(self) -> None:
        for token in ("wrong", "phx_" + "0" * 64):
            with self.subTest(token), self.assertRaises(phalanx.Unauthorized) as caught:
                Cluster.connect(self.daemon.url, token)
            self.assertEqual(caught.exception.status, 401)
            self.assertIn("phalanx token create", str(caught.exception))
        from phalanx._transport import Transport

        with self.assertRaisesRegex(phalanx.Unauthorized, "no token"):
            Cluster(Transport(self.daemon.url, None)).user()

    def test_read_only_token(self) -> None:
        with self.daemon.connect(self.daemon.token("reader", "--read-only")) as cluster:
            self.assertEqual(cluster.user()["role"], "viewer")
            self.assertEqual(len(cluster.nodes()), 4)
            for act in (lambda: cluster.submit("true"), lambda: cluster.node("a1").cordon()):
                with self.assertRaises(phalanx.Forbidden) as caught:
                    act()
                self.assertIn("only reads", caught.exception.detail)

    def test_revoked_token_is_no_longer_valid(self) -> None:
        cluster = self.daemon.connect(self.daemon.token("soon-gone"))
        self.cluster.api.revoke_token("soon-gone")
        with self.assertRaises(phalanx.Unauthorized):
            cluster.nodes()
        cluster.close()


if __name__ == "__main__":
    unittest.main()
