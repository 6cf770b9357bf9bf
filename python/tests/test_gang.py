"""Functions as jobs."""

import asyncio
import functools
import os
import unittest
from unittest import mock

from support import LIMIT_S, ClusterCase

import phalanx
from phalanx import NotShippable, gang
from phalanx._ship import arguments_of, source_of

OUTSIDE = 3


@gang(gpus=2, nodes=1)
def add(x: int, *more: int, scale: float = 1) -> dict:
    """Adds."""
    import os

    def total(values: list) -> float:
        return sum(v * scale for v in values)

    print("rank", os.environ["RANK"])
    return {"sum": total([x, *more]), "rank": int(os.environ["RANK"])}


@gang(ranks=1)
def fail() -> None:
    raise RuntimeError("on purpose")


@gang(ranks=1)
def unwritable() -> object:
    return {1, 2}


@gang(ranks=1)
def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


class Gang(ClusterCase):
    def setUp(self) -> None:
        super().setUp()
        folder = mock.patch.dict(os.environ, {"PHALANX_FUNCTIONS": str(self.folder)})
        folder.start()
        self.addCleanup(folder.stop)

    def test_run(self) -> None:
        with mock.patch.dict(os.environ, {"RANK": "0"}):
            self.assertEqual(add(1, 2)["sum"], 3)
        self.assertEqual(add.__doc__, "Adds.")
        self.assertEqual(add.on(self.cluster).run(1, 2, scale=10), {"sum": 30, "rank": 0})
        self.assertEqual(factorial.on(self.cluster).run(5), 120)

    def test_submit(self) -> None:
        job = add.on(self.cluster).submit(4)
        self.assertEqual(job.name, "add")
        self.assertEqual({entry.line for entry in job.logs()}, {"rank 0", "rank 1"})
        self.assertEqual(job.result(LIMIT_S)["sum"], 4)
        self.assertEqual(job.folder.parent, self.folder)
        self.assertEqual(job.folder.stat().st_mode & 0o777, 0o700)

    def test_cluster_is_found_by_itself(self) -> None:
        with mock.patch.dict(os.environ, {"PHALANX_URL": self.daemon.url, "PHALANX_TOKEN": self.daemon.token("gang")}):
            found = gang(ranks=1)(factorial.function)
            self.assertEqual(found.run(3), 6)
        found._cluster.close()

    def test_failures(self) -> None:
        job = fail.on(self.cluster).submit()
        with self.assertRaises(phalanx.JobFailed):
            job.result(LIMIT_S)
        self.assertIn("RuntimeError: on purpose", [entry.line for entry in job.logs(follow=False)])
        with self.assertRaises(phalanx.JobFailed):
            unwritable.on(self.cluster).run()
        job = factorial.on(self.cluster).submit(1)
        job.wait(LIMIT_S, check=True)
        (job.folder / "result.json").unlink()
        with self.assertRaisesRegex(phalanx.PhalanxError, "share"):
            job.result()

    def test_wrong_arguments_submit_nothing(self) -> None:
        before = [job.id for job in self.cluster.jobs(finished=True)]
        for args, error in (
            ((), TypeError),
            (({1},), NotShippable),
            ((float("nan"),), NotShippable),
            (((1,),), NotShippable),
        ):
            with self.subTest(str(args)), self.assertRaises(error):
                add.on(self.cluster).submit(*args)
        self.assertEqual([job.id for job in self.cluster.jobs(finished=True)], before)
        self.assertEqual(list(self.folder.iterdir()), [])


class Ship(unittest.TestCase):
    def refused(self, function: object, why: str) -> None:
        with self.assertRaisesRegex(NotShippable, why):
            source_of(function)  # type: ignore[arg-type]

    def test_what_cannot_be_shipped(self) -> None:
        inner = 4

        def closure() -> int:
            return inner

        def outside() -> int:
            return OUTSIDE

        def module() -> str:
            return os.getcwd()

        def default(x: int = OUTSIDE) -> int:
            return x

        async def coroutine() -> None:
            await asyncio.sleep(0)

        def generator() -> object:
            yield 1

        self.refused(lambda: 1, "no function with a name")
        self.refused(len, "no function with a name")
        self.refused(closure, "closure over inner")
        self.refused(outside, "names from outside: OUTSIDE")
        self.refused(module, "names from outside: os")
        self.refused(default, "OUTSIDE")
        self.refused(coroutine, "asynchronous")
        self.refused(generator, "generator")
        space: dict = {}
        exec("def unseen():\n    return 1\n", space)
        self.refused(space["unseen"], "source of unseen")

    def test_other_decorators_would_be_lost(self) -> None:
        @gang()
        @functools.lru_cache(None)
        def cached() -> int:
            return 1

        @gang()
        @staticmethod
        def static() -> int:
            return 1

        def outer() -> int:
            return 1

        self.refused(cached.function, "no function with a name")
        self.refused(functools.wraps(outer)(lambda: 2), "other decorators")
        self.refused(static.function, "no function with a name")

        def twice(function: object) -> object:
            return function

        @gang()
        @twice
        def plain() -> int:
            return 1

        self.refused(plain.function, "other decorators")

    def test_annotations_need_nothing(self) -> None:
        def annotated(x: "unittest.TestCase", *y: OUTSIDE) -> OUTSIDE:  # type: ignore[valid-type]
            z: unittest.TestCase = x
            return z

        self.assertTrue(source_of(annotated).startswith("def annotated(x, *y):"))

    def test_arguments(self) -> None:
        def takes(x: object, y: object = None) -> None: ...

        self.assertEqual(
            arguments_of(takes, ([1, "a"],), {"y": {"k": None}}), '{"args": [[1, "a"]], "named": {"y": {"k": null}}}'
        )
        with self.assertRaisesRegex(NotShippable, "other values"):
            arguments_of(takes, ({1: 2},), {})


if __name__ == "__main__":
    unittest.main()
