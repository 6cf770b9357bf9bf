"""The same for asyncio."""

import asyncio
import unittest
from typing import Any, Awaitable, Callable

from support import LIMIT_S, ClusterCase, has

import phalanx
from phalanx import AsyncCluster


class Async(ClusterCase):
    def go(self, body: Callable[[AsyncCluster], Awaitable[Any]]) -> Any:
        async def connected() -> Any:
            token = self.daemon.token("asyncio")
            try:
                async with await AsyncCluster.connect(self.daemon.url, token) as cluster:
                    return await asyncio.wait_for(body(cluster), LIMIT_S)
            finally:
                self.cluster.api.revoke_token("asyncio")

        return asyncio.run(connected())

    def test_submit_wait_logs(self) -> None:
        async def body(cluster: AsyncCluster) -> None:
            job = await cluster.submit("echo from $RANK", ranks=2, workdir=str(self.folder))
            lines = {entry.line async for entry in job.logs()}
            self.assertEqual(lines, {"from 0", "from 1"})
            await job.wait(LIMIT_S, check=True)
            self.assertEqual((await job.state(), job.succeeded, job.exit_code), ("succeeded", True, 0))
            self.assertEqual((await cluster.job(job.id)).id, job.id)
            self.assertIn("succeeded", [event["what"] for event in await job.events()])
            self.assertIn("AsyncJob", repr(job))
            self.assertIn("succeeded", job._repr_html_())

        self.go(body)

    def test_jobs_run_side_by_side(self) -> None:
        """Each job waits until the others have started: one after the other, none would end."""
        count = 4
        wait = f"touch $PHALANX_JOB_ID; until [ $(ls | wc -l) -ge {count} ]; do sleep 0.05; done"

        async def one(cluster: AsyncCluster) -> str:
            job = await cluster.submit(wait, gpus=1, workdir=str(self.folder), ranks=1)
            return (await job.wait(LIMIT_S)).view["state"]

        async def body(cluster: AsyncCluster) -> Any:
            return await asyncio.gather(*(one(cluster) for _ in range(count)))

        self.assertEqual(self.go(body), ["succeeded"] * count)

    def test_more_requests_than_the_server_answers_at_once(self) -> None:
        async def body(cluster: AsyncCluster) -> Any:
            return await asyncio.gather(*(cluster.nodes() for _ in range(100)))

        self.assertEqual({len(nodes) for nodes in self.go(body)}, {4})

    def test_a_stream_that_waits_does_not_hold_up_others(self) -> None:
        async def body(cluster: AsyncCluster) -> None:
            job = await cluster.submit(["sleep", "600"], ranks=1, workdir=str(self.folder), grace="1s")

            async def follow() -> list:
                return [entry async for entry in job.logs()]

            followers = [asyncio.ensure_future(follow()) for _ in range(8)]
            self.assertEqual(len(await cluster.nodes()), 4)
            await job.cancel()
            self.assertEqual(await asyncio.gather(*followers), [[]] * 8)

        self.go(body)

    def test_a_cancelled_task_closes_its_stream(self) -> None:
        async def body(cluster: AsyncCluster) -> None:
            job = await cluster.submit("echo first; exec sleep 600", ranks=1, workdir=str(self.folder), grace="1s")
            has_begun = asyncio.Event()

            async def follow() -> None:
                async for entry in job.logs():
                    self.assertEqual(entry.line, "first")
                    has_begun.set()

            follower = asyncio.ensure_future(follow())
            await has_begun.wait()
            follower.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await follower
            await job.cancel()
            await job.wait(LIMIT_S)

        self.go(body)

    def test_watch_ends_when_it_is_left(self) -> None:
        async def body(cluster: AsyncCluster) -> None:
            changes = cluster.watch()
            begun = asyncio.ensure_future(changes.__anext__())
            node = await cluster.node("b1")
            while not begun.done():
                # The stream may begin after the change before, so there is another one.
                await node.cordon()
                await node.uncordon()
            self.assertEqual((await begun).node, "b1")
            await changes.aclose()

        self.go(body)

    def test_all_views(self) -> None:
        async def body(cluster: AsyncCluster) -> None:
            held = await cluster.submit("true", hold=True, name="async", workdir=str(self.folder), ranks=1)
            self.assertEqual([job.id async for job in cluster.jobs(name="async", page=1)], [held.id])
            self.assertTrue(str(await held.why()))
            await held.update(priority=3)
            await held.release()
            await held.wait(LIMIT_S)
            self.assertEqual((await cluster.queues())[0]["name"], "default")
            self.assertTrue((await cluster.health()).is_ok)
            self.assertTrue(await cluster.events(limit=5))
            self.assertEqual((await cluster.overview())["devices"]["total"], 32)
            self.assertEqual((await cluster.bill(["queue"])).by, ["queue"])
            self.assertIn("would start", str(await cluster.dry_run("true", gpus=1)))
            self.assertIn((await cluster.user())["role"], ("user", "operator"))
            self.assertEqual(cluster.url, self.daemon.url)
            self.assertIn("AsyncCluster", repr(cluster))
            if has("networkx"):
                self.assertTrue(await cluster.map())
            if has("pandas"):
                self.assertEqual(len(await cluster.queue_frame()), 1)
                self.assertTrue(len(await cluster.job_frame(finished=True)))

        self.go(body)

    def test_changes_of_jobs_and_nodes(self) -> None:
        async def body(cluster: AsyncCluster) -> None:
            node = await cluster.node("b1")
            await node.cordon("async")
            self.assertEqual((await node.refresh()).state, "cordoned")
            await node.drain()
            await node.uncordon()
            self.assertEqual([one.name for one in await cluster.nodes()][0], "a1")
            self.assertIn("AsyncNode b1", repr(node))
            job = await cluster.submit("exec sleep 600", ranks=1, workdir=str(self.folder), grace="1s")
            await job.hold()
            with self.assertRaises(phalanx.WaitTimeout):
                await job.wait(0)
            await job.cancel()
            with self.assertRaises(phalanx.JobFailed):
                await job.wait(LIMIT_S, check=True)
            with self.assertRaises(phalanx.PhalanxError):
                await job.requeue()
            with self.assertRaises(phalanx.NotFound):
                await cluster.job("no-such-job")

        self.go(body)


if __name__ == "__main__":
    unittest.main()
