"""A daemon of its own for the tests, with declared nodes on a free loopback port."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT))

import phalanx  # noqa: E402
from phalanx import Cluster, Job  # noqa: E402

LIMIT_S = 60.0
CLUSTER = """\
name: lab
levels: [cluster, block, leaf]
nodes:
  - {name: "a[1-2]", devices: {count: 8, link: nvlink, model: NVIDIA H100}, path: {block: b1, leaf: leaf-1}}
  - {name: "b[1-2]", devices: {count: 8, link: nvlink, model: NVIDIA H100}, path: {block: b1, leaf: leaf-2}}
links:
  leaf: {bandwidth: 100GB/s, latency: 2us}
  node: {bandwidth: 50GB/s, latency: 5us}
"""


def binary() -> str:
    found = os.environ.get("PHALANX_BIN") or shutil.which("phalanx")
    if not found:
        raise unittest.SkipTest("set PHALANX_BIN to the path of the program phalanx")
    return found


class Daemon:
    """A daemon in a folder that goes away with it."""

    def __init__(self) -> None:
        self.binary = binary()
        self.folder = Path(tempfile.mkdtemp(prefix="phalanx-python-"))
        self.state = self.folder / "state"
        self.state.mkdir()
        (self.folder / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()
        atexit.register(self.remove)

    def environment(self) -> Dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}
        return {**known, "PHALANX_STATE": str(self.state)}

    def command(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            [self.binary, *words], env=self.environment(), capture_output=True, text=True, timeout=LIMIT_S
        )
        if check and done.returncode != 0:
            raise AssertionError(f"phalanx {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self) -> None:
        cluster = str(self.folder / "cluster.yaml")
        self.command("up", "--cluster", cluster, "--api", f"127.0.0.1:{self.port}", "--detach")
        self.pid = json.loads(phalanx_version(self.url))["pid"]

    def stop(self) -> None:
        self.command("down", check=False)

    def kill(self) -> None:
        """Ends it as a crash would."""
        os.kill(self.pid, signal.SIGKILL)

    def remove(self) -> None:
        atexit.unregister(self.remove)
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def token(self, name: str, *options: str) -> str:
        return str(json.loads(self.command("token", "create", name, *options, "-o", "json"))["text"])

    def connect(self, token: Optional[str] = None, **options: Any) -> Cluster:
        return Cluster.connect(self.url, token or self.token(f"t{os.urandom(4).hex()}"), **options)


def phalanx_version(url: str) -> str:
    import urllib.request

    with urllib.request.urlopen(f"{url}/v1/version", timeout=LIMIT_S) as answer:
        return str(answer.read().decode())


_shared: Optional[Daemon] = None


def daemon() -> Daemon:
    """The daemon that all tests share which do not stop it."""
    global _shared
    if _shared is None:
        _shared = Daemon()
    return _shared


class ClusterCase(unittest.TestCase):
    """Tests with a connection to the shared daemon. Jobs that a test leaves are cancelled."""

    daemon: Daemon
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = daemon()
        cls.cluster = cls.daemon.connect()
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="phalanx-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def tearDown(self) -> None:
        for job in list(self.cluster.jobs()):
            with contextlib.suppress(phalanx.PhalanxError):
                job.cancel()
            job.wait(LIMIT_S)

    def submit(self, command: Any = ("sh", "-c", "echo hello"), **fields: Any) -> Job:
        fields.setdefault("workdir", str(self.folder))
        fields.setdefault("grace", "1s")
        return self.cluster.submit(command, **fields)

    def running(self, **fields: Any) -> Job:
        """A job that runs until it is cancelled."""
        job = self.submit(["sleep", "600"], **fields)
        return reaches(self.cluster, job, "running")


@contextlib.contextmanager
def closes(stream: Any, limit: float = LIMIT_S) -> Iterator[Any]:
    """Closes a stream at the end, or after a limit: a test that waits in vain fails."""
    timer = threading.Timer(limit, stream.close)
    timer.daemon = True
    timer.start()
    try:
        yield stream
    finally:
        timer.cancel()
        stream.close()


def reaches(cluster: Cluster, job: Job, *states: str) -> Job:
    """Waits until a job has one of these states."""
    with closes(cluster.watch()) as changes:
        while job.refresh().view["state"] not in states:
            if job.is_over:
                raise AssertionError(f"{job!r} ended: {job.detail}")
            next(change for change in changes if change.job in (None, job.id))
    return job


def has(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None
