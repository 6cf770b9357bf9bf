"""Jobs: submit, wait, read, explain, change."""

import json
import unittest
from datetime import timedelta, timezone

from support import LIMIT_S, ClusterCase, reaches

import phalanx
from phalanx._file import job_file


class Submit(ClusterCase):
    def test_list_and_text(self) -> None:
        job = self.submit(["sh", "-c", "echo $GREETING $RANK"], gpus=4, nodes=2, name="hello", env={"GREETING": "hi"})
        self.assertEqual(job.name, "hello")
        lines = {(entry.rank, entry.line) for entry in job.logs()}
        self.assertEqual(lines, {(rank, f"hi {rank}") for rank in range(4)})
        self.assertTrue(job.wait(LIMIT_S, check=True).succeeded)
        self.assertEqual((job.state, job.exit_code, len(job.nodes)), ("succeeded", 0, 2))
        self.assertEqual(job.started_at.tzinfo, timezone.utc)
        self.assertLessEqual(job.submitted_at, job.finished_at)
        text = self.submit("for i in 1 2; do echo line $i; done", ranks=1)
        self.assertEqual([str(entry) for entry in text.logs()], ["0: line 1", "0: line 2"])

    def test_files(self) -> None:
        fields = {"name": "of-file", "run": "echo file", "workdir": str(self.folder), "resources": {"gpus": 1}}
        yaml = self.folder / "job.yaml"
        yaml.write_text(f"name: of-file\nrun: echo file\nworkdir: {self.folder}\nresources: {{gpus: 1}}\n")
        plain = self.folder / "job.json"
        plain.write_text(json.dumps(fields))
        for file in (fields, str(yaml), plain):
            with self.subTest(str(file)):
                job = self.cluster.submit(file=file).wait(LIMIT_S, check=True)
                self.assertEqual(job.name, "of-file")

    def test_key_makes_one_job_of_two_submissions(self) -> None:
        first = self.submit(key="once")
        self.assertEqual(self.submit(key="once"), first)
        self.assertNotEqual(self.submit(), first)
        fields = {"command": ["true"], "key": "in-the-file", "workdir": str(self.folder)}
        self.assertEqual(self.cluster.submit(file=fields), self.cluster.submit(file=fields))
        yaml = self.folder / "job.yaml"
        yaml.write_text(f"command: [echo]\nkey: of-yaml\nworkdir: {self.folder}\n")
        self.assertEqual(self.cluster.submit(file=yaml), self.cluster.submit(file=yaml))

    def test_bad_fields_are_named(self) -> None:
        with self.assertRaises(phalanx.BadRequest) as caught:
            self.submit(resources={"gpus": "many"})
        self.assertEqual(caught.exception.errors[0].field, "resources.gpus")
        self.assertEqual((caught.exception.status, caught.exception.code), (400, "bad_request"))
        self.assertIn("hint:", str(caught.exception))
        with self.assertRaises(phalanx.BadRequest) as caught:
            self.submit(queu="typo")
        self.assertIn("did you mean", caught.exception.detail)

    def test_what_cannot_run_is_rejected(self) -> None:
        with self.assertRaises(phalanx.Rejected) as caught:
            self.submit(gpus=800)
        self.assertEqual(caught.exception.status, 422)

    def test_oversized_body(self) -> None:
        with self.assertRaises(phalanx.BadRequest) as caught:
            self.submit(env={"BIG": "x" * (5 << 20)})
        self.assertEqual(caught.exception.status, 413)
        big = self.folder / "big.yaml"
        big.write_text("#" * (5 << 20))
        with self.assertRaisesRegex(ValueError, "bytes"):
            self.cluster.submit(file=big)

    def test_dry_run(self) -> None:
        before = [job.id for job in self.cluster.jobs(finished=True)]
        plan = self.cluster.dry_run(["true"], gpus=8, key="unused")
        self.assertIn("would start now", str(plan))
        self.assertFalse(plan.is_rejected)
        self.assertIn("would start", plan._repr_html_())
        self.assertIn("would start", repr(plan))
        self.assertEqual([job.id for job in self.cluster.jobs(finished=True)], before)


class Arguments(unittest.TestCase):
    def test_gpus_are_of_the_whole_job(self) -> None:
        def gpus(**fields: object) -> object:
            return job_file("true", **fields)["resources"]["gpus"]  # type: ignore[arg-type,index]

        self.assertEqual(gpus(gpus=8), 8)
        self.assertEqual(gpus(gpus=8, nodes=1), 8)
        self.assertEqual(gpus(gpus=16, nodes=2), 8)
        self.assertEqual(gpus(gpus="H100:16", nodes=2), "H100:8")
        self.assertEqual(gpus(gpus_per_node=4, nodes=2), 4)
        self.assertEqual(gpus(gpus=0.5, nodes=2), 0.5)

    def test_contradictions_are_refused(self) -> None:
        for error, fields in (
            (ValueError, {"gpus": 3, "nodes": 2}),
            (TypeError, {"gpus": 3, "gpus_per_node": 2}),
            (TypeError, {"gpus_per_node": 2}),
            (TypeError, {"gpus": 1, "resources": {"gpus": 1}}),
            (TypeError, {"file": {"run": "true"}}),
            (TypeError, {"time_limit": 90}),
            (TypeError, {"time_limit": "90"}),
        ):
            with self.subTest(str(fields)), self.assertRaises(error):
                job_file("true", **fields)
        with self.assertRaisesRegex(TypeError, "command"):
            job_file(gpus=1)

    def test_times_and_words(self) -> None:
        file = job_file("true", time_limit=timedelta(minutes=90), class_="serving")
        self.assertEqual(file, {"run": "true", "time_limit": "5400s", "class": "serving"})
        self.assertEqual(job_file("true", time_limit="2h"), {"run": "true", "time_limit": "2h"})


class Life(ClusterCase):
    def test_failure(self) -> None:
        job = self.submit("echo before; exit 3", ranks=1).wait(LIMIT_S)
        self.assertEqual((job.state, job.exit_code, job.reason), ("failed", 3, "user_code"))
        self.assertIn("exit code 3", job.detail)
        with self.assertRaisesRegex(phalanx.JobFailed, "exit code 3"):
            job.wait(check=True)
        self.assertEqual([entry.line for entry in job.logs(follow=False)], ["before"])

    def test_wait_times_out(self) -> None:
        job = self.running(ranks=1)
        with self.assertRaises(phalanx.WaitTimeout) as caught:
            job.wait(0)
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertEqual(job.state, "running")

    def test_logs(self) -> None:
        job = self.submit("for i in 1 2 3; do echo $RANK-$i; done", ranks=2).wait(LIMIT_S, check=True)
        self.assertEqual([entry.line for entry in job.logs(rank=1)], ["1-1", "1-2", "1-3"])
        self.assertEqual({entry.line for entry in job.logs(follow=False, tail=1)}, {"0-3", "1-3"})
        timed = list(job.logs(timestamps=True, attempt=1))
        self.assertEqual(len(timed), 6)
        self.assertTrue(all(entry.at for entry in timed))
        with job.logs() as stream:
            next(stream)
        with self.assertRaises(StopIteration):
            next(stream)

    def test_logs_follow_a_job_that_runs(self) -> None:
        job = self.submit("echo first; exec sleep 600", ranks=1)
        with job.logs() as stream:
            self.assertEqual(next(stream).line, "first")
            job.cancel()
            self.assertEqual(list(stream), [])
        self.assertEqual(job.wait(LIMIT_S).state, "cancelled")

    def test_why(self) -> None:
        self.running(gpus=32)
        job = self.submit(gpus=16)
        why = job.why()
        self.assertEqual(job.state, "pending")
        self.assertTrue(why.sentences)
        self.assertEqual(str(why), "\n".join(why.sentences))
        self.assertIn(f"job {job.id}", repr(why))
        self.assertIn("<table>", why._repr_html_())
        self.assertEqual(why.view["job"]["id"], job.id)

    def test_hold_release_update(self) -> None:
        job = self.submit(hold=True)
        self.assertEqual(job.state, "pending")
        job.update(priority=7)
        self.assertEqual(job.refresh().view["priority"], 7)
        job.release()
        job.wait(LIMIT_S, check=True)
        words = [event["what"] for event in job.events()]
        self.assertEqual(words[0], "submitted")
        self.assertIn("succeeded", words)
        self.assertIn("<th>what</th>", job.events()._repr_html_())

    def test_requeue(self) -> None:
        job = self.running(ranks=1)
        job.requeue(hold=True)
        reaches(self.cluster, job, "pending")
        job.hold()
        job.cancel()
        self.assertEqual(job.wait(LIMIT_S).state, "cancelled")
        with self.assertRaises(phalanx.PhalanxError):
            job.requeue()

    def test_look_up(self) -> None:
        job = self.submit(name="by-name", array=3)
        self.assertEqual(self.cluster.job("by-name"), job)
        self.assertEqual(self.cluster.job(job.id).id, job.id)
        task = self.cluster.job(f"{job.id}.2")
        self.assertIn(f"{job.id}.2", repr(task))
        self.assertNotEqual(task, job)
        self.assertEqual(len({job, self.cluster.job(job.id)}), 1)
        for ref in (10**9, "no-such-name"):
            with self.assertRaises(phalanx.NotFound) as caught:
                self.cluster.job(ref)
            self.assertEqual(caught.exception.code, "not_found")

    def test_html_is_escaped(self) -> None:
        job = self.submit("exit 1", ranks=1)
        job.wait(LIMIT_S)
        job.view["name"] = "<script>alert(1)</script>"
        job.view["detail"] = "a & b <i>"
        html = job._repr_html_()
        self.assertNotIn("<script>", html)
        self.assertIn("&lt;script&gt;", html)
        self.assertIn("a &amp; b &lt;i&gt;", html)


class Lists(ClusterCase):
    def test_pages(self) -> None:
        made = [self.submit(hold=True, name="page").id for _ in range(5)]
        found = [job.id for job in self.cluster.jobs(name="page", page=2)]
        self.assertEqual(found, made[::-1])
        self.assertEqual([job.id for job in self.cluster.jobs(name="pag*", limit=3, page=2)], made[:1:-1])
        listed = self.cluster.jobs(name="page")
        self.assertEqual(len(list(listed)), len(list(listed)))
        self.assertEqual(listed._repr_html_().count("<tr>"), 6)

    def test_filters(self) -> None:
        ended = self.submit(name="filter").wait(LIMIT_S)
        held = self.submit(hold=True, name="filter")
        me = self.cluster.user()["user"]
        self.assertEqual(list(self.cluster.jobs(name="filter", owner=me)), [held])
        self.assertEqual(list(self.cluster.jobs(name="filter", finished=True)), [held, ended])
        self.assertEqual(list(self.cluster.jobs(name="filter", state="succeeded")), [ended])
        self.assertEqual(list(self.cluster.jobs(name="filter", state=["succeeded", "pending"])), [held, ended])
        self.assertEqual(list(self.cluster.jobs(name="filter", queue="other")), [])
        with self.assertRaises(phalanx.BadRequest) as caught:
            list(self.cluster.jobs(page=0))
        self.assertEqual(caught.exception.errors[0].field, "limit")


if __name__ == "__main__":
    unittest.main()
