"""Nodes, queues, health, events, the bill; graphs and frames where their packages are installed."""

import builtins
import sys
import unittest
from datetime import datetime, timedelta, timezone
from unittest import mock

from support import LIMIT_S, ClusterCase, has

import phalanx


class Nodes(ClusterCase):
    def test_list(self) -> None:
        nodes = self.cluster.nodes()
        self.assertEqual([node.name for node in nodes], ["a1", "a2", "b1", "b2"])
        self.assertIn("NVIDIA H100", nodes._repr_html_())
        self.assertEqual(nodes[0].path, ["lab", "b1", "leaf-1"])
        self.assertEqual(nodes[0].free, list(range(8)))
        self.assertIn("8 of 8 devices free", repr(nodes[0]))
        self.assertIn("open", nodes[0]._repr_html_())
        self.assertEqual(nodes[0].links, self.cluster.node("a1").links)

    def test_one(self) -> None:
        node = self.cluster.node("a1")
        self.assertEqual(node.link_names[:2], ["GPU0", "GPU1"])
        self.assertEqual(node.links[0][0], "X")
        self.assertEqual((node.devices, node.jobs), (8, []))
        job = self.running(gpus=2, nodes=["a1"])
        self.assertEqual(node.refresh().jobs, [job.id])
        self.assertEqual(len(node.free), 6)
        with self.assertRaises(phalanx.NotFound):
            self.cluster.node("no-such-node")

    def test_cordon_drain_uncordon(self) -> None:
        node = self.cluster.node("b2")
        self.addCleanup(node.uncordon)
        node.cordon("a test")
        self.assertEqual(node.refresh().state, "cordoned")
        self.assertIn("a test", str(node.view.get("closed_by")))
        node.uncordon()
        self.assertEqual(node.refresh().state, "open")
        node.drain("tonight", by=datetime.now(timezone.utc) + timedelta(hours=5))
        node.drain()
        self.assertEqual(node.refresh().state, "draining")
        with self.assertRaisesRegex(ValueError, "time zone"):
            node.drain(by=datetime(2030, 1, 1))
        self.assertIn("cordon", [line["verb"] for line in self.cluster.audit()])


class Views(ClusterCase):
    def test_queues_and_overview(self) -> None:
        self.assertEqual([queue["name"] for queue in self.cluster.queues()], ["default"])
        self.assertIn("<td>default</td>", self.cluster.queues()._repr_html_())
        self.assertEqual(self.cluster.overview()["devices"]["total"], 32)
        self.assertIn("devices total", self.cluster._repr_html_())

    def test_health(self) -> None:
        self.assertTrue(self.cluster.health().is_ok)
        self.addCleanup(self.cluster.api.clear_health, "a2")
        self.cluster.api.report_health({"node": "a2", "finding": {"grade": "suspect"}})
        health = self.cluster.health()
        self.assertEqual(len(health.lines), 1)
        self.assertIn("1 findings", repr(health))
        self.assertIn("a2", health._repr_html_())

    def test_events(self) -> None:
        job = self.submit().wait(LIMIT_S)
        events = self.cluster.events()
        self.assertIn((job.id, "succeeded"), [(event["job"], event["what"]) for event in events])
        self.assertEqual(len(self.cluster.events(limit=1)), 1)
        self.assertIn("UTC", events._repr_html_())

    def test_bill(self) -> None:
        self.submit(gpus=1).wait(LIMIT_S, check=True)
        bill = self.cluster.bill(by=["queue", "user"], since=datetime(2020, 1, 1, tzinfo=timezone.utc))
        self.assertEqual(bill.by, ["queue", "user"])
        self.assertIn("default", [row["queue"] for row in bill.rows])
        self.assertIn("cost", bill._repr_html_())
        self.assertIsNotNone(bill.until)
        self.assertEqual(self.cluster.bill("user").by, ["user"])
        with self.assertRaises(phalanx.BadRequest) as caught:
            self.cluster.bill(by=["colour"])
        self.assertEqual(caught.exception.errors[0].field, "by")
        with self.assertRaisesRegex(ValueError, "time zone"):
            self.cluster.bill(since=datetime(2020, 1, 1))

    def test_what_if(self) -> None:
        job = self.running(gpus=8, nodes=["a1"], name="moves")
        answer = self.cluster.what_if(
            drain=["a1"],
            set={"half_life": "3d"},
            add_nodes={"leaf-1": 2},
            job={"name": "fresh", "resources": {"gpus": 8}, "run": "true", "time_limit": "1h"},
            horizon="2h",
        )
        changed = {row["gang"]["job"]: row["change"] for row in answer["gangs"]}
        self.assertIn("moved", changed[job.id])
        self.assertIn("fresh", [row["then"]["job"] for row in answer["gangs"] if row["change"] == "new"])
        self.assertEqual(len(answer["changes"]), 4)
        self.assertEqual(self.cluster.node("a1").state, "open")
        with self.assertRaises(phalanx.PhalanxError) as caught:
            self.cluster.what_if(drain=["nowhere"])
        self.assertEqual(caught.exception.errors[0].field, "drain[0]")

    def test_every_read_answers(self) -> None:
        api = self.cluster.api
        self.assertEqual(api.get_topology()["levels"]["above"], ["cluster", "block", "leaf"])
        self.assertEqual(api.list_windows()["items"], [])
        self.assertIn("jobs", api.get_advice())
        self.assertEqual(api.get_queue("default")["queue"]["name"], "default")


class Optional(ClusterCase):
    def test_a_missing_package_is_named(self) -> None:
        usual = builtins.__import__

        def without(name: str, *rest: object, **named: object) -> object:
            if name.split(".")[0] in ("networkx", "pandas"):
                raise ImportError(name)
            return usual(name, *rest, **named)  # type: ignore[arg-type]

        hidden = dict.fromkeys(("networkx", "pandas"))
        with mock.patch.dict(sys.modules, hidden), mock.patch.object(builtins, "__import__", without):
            with self.assertRaisesRegex(ImportError, r"pip install 'phalanx-client\[map\]'"):
                self.cluster.map()
            for frame in (self.cluster.queue_frame, self.cluster.job_frame):
                with self.assertRaisesRegex(ImportError, r"phalanx-client\[frames\]"):
                    frame()

    @unittest.skipUnless(has("networkx"), "networkx is not installed")
    def test_map(self) -> None:
        job = self.running(gpus=3, nodes=["a1"])
        graph = self.cluster.map()
        self.assertEqual(len([n for n in graph if n[0] == "device"]), 32)
        self.assertEqual(list(graph.predecessors(("node", "a1"))), [("domain", "lab", "b1", "leaf-1")])
        held = [n for n, facts in graph.nodes(data=True) if facts.get("job") == job.id]
        self.assertEqual({n[1] for n in held}, {"a1"})
        self.assertEqual(len(held), 3)
        self.assertEqual(graph.graph["jobs"][job.id]["name"], job.name)
        self.assertEqual(graph.graph["levels"], ["cluster", "block", "leaf"])
        import networkx

        self.assertTrue(networkx.is_tree(graph))

    @unittest.skipUnless(has("pandas"), "pandas is not installed")
    def test_frames(self) -> None:
        held = self.submit(hold=True, gpus=2)
        done = self.submit(gpus=4, nodes=2).wait(LIMIT_S, check=True)
        jobs = self.cluster.job_frame(finished=True).set_index("id")
        self.assertEqual(jobs.loc[done.id, "gpus"], 4)
        self.assertEqual(len(jobs.loc[done.id, "nodes"]), 2)
        self.assertEqual(str(jobs["submitted_at"].dt.tz), "UTC")
        self.assertGreaterEqual(jobs.loc[done.id, "waited"].total_seconds(), 0)
        self.assertTrue(jobs.isna().loc[held.id, "started_at"])
        queues = self.cluster.queue_frame()
        self.assertEqual(list(queues["name"]), ["default"])
        self.assertIn("fair_share_gpus", queues.columns)
        self.assertEqual(len(self.cluster.job_frame(name="nothing-has-this-name")), 0)


if __name__ == "__main__":
    unittest.main()
