"""`@phalanx.gang(gpus=8)`: a function that runs as a job."""

from __future__ import annotations

import functools
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any, Callable, Generic, Optional, TypeVar, cast

from ._cluster import Cluster
from ._errors import PhalanxError
from ._file import Gpus
from ._job import Job
from ._ship import arguments_of, script_of

RESULT_BYTES_MAX = 64 << 20
R = TypeVar("R")


class FunctionJob(Job):
    """A job that runs a function. `result()` waits for the value that rank 0 returned."""

    folder: Path
    """The folder of its script, its arguments and its result."""

    def result(self, timeout: Optional[float] = None) -> Any:
        """Waits, and returns the result of rank 0. `JobFailed` if the job did not succeed."""
        self.wait(timeout, check=True)
        path = self.folder / "result.json"
        try:
            if path.stat().st_size > RESULT_BYTES_MAX:
                raise PhalanxError(
                    f"{path} has more than {RESULT_BYTES_MAX} bytes", hint="write large results to files"
                )
            return json.loads(path.read_text(encoding="utf-8"))["result"]
        except FileNotFoundError:
            hint = "the folder must be on a file system that this machine and the nodes share"
            raise PhalanxError(f"job {self.id} succeeded, but {path} is not there", hint=hint) from None


class GangFunction(Generic[R]):
    """A function that runs here when called, and as a job by `submit` or `run`."""

    def __init__(
        self, function: Callable[..., R], cluster: Optional[Cluster], folder: Optional[str], fields: Any
    ) -> None:
        self.function = function
        self._cluster, self._folder, self._fields = cluster, folder, fields
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **named: Any) -> R:
        """Runs the function here, without a job."""
        return self.function(*args, **named)

    def on(self, cluster: Cluster) -> "GangFunction[R]":
        """The same function for jobs of this cluster."""
        return GangFunction(self.function, cluster, self._folder, self._fields)

    def submit(self, *args: Any, **named: Any) -> FunctionJob:
        """Submits the function with these arguments as a job."""
        script, arguments = script_of(self.function), arguments_of(self.function, args, named)
        if self._cluster is None:
            self._cluster = Cluster.connect()
        key = uuid.uuid4().hex
        folder = self._write(key, script, arguments)
        fields = {"name": self.function.__name__, "workdir": os.getcwd(), **self._fields}
        command = [sys.executable, str(folder / "call.py")]
        job = self._cluster.submit(command, key=key, **fields)
        made = FunctionJob(job._api, job.view)
        made.folder = folder
        return made

    def run(self, *args: Any, **named: Any) -> R:
        """Submits, waits, and returns the result of rank 0."""
        return cast(R, self.submit(*args, **named).result())

    def _write(self, key: str, script: str, arguments: str) -> Path:
        parent = Path(self._folder or os.environ.get("PHALANX_FUNCTIONS") or Path.home() / ".phalanx" / "functions")
        folder = parent.expanduser().absolute() / key
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        (folder / "call.py").write_text(script, encoding="utf-8")
        (folder / "arguments.json").write_text(arguments, encoding="utf-8")
        return folder


def gang(
    *, gpus: Optional[Gpus] = None, nodes: Any = None, cluster: Optional[Cluster] = None, folder: Optional[str] = None,
    **fields: Any,
) -> Callable[[Callable[..., R]], GangFunction[R]]:  # fmt: skip
    """Makes a function that can run as a job. Takes the fields that `Cluster.submit` takes.

    The job has one rank for each GPU unless `ranks` says otherwise; each rank calls the function, with its number in
    the environment variable RANK. The source and the arguments (as JSON) are written to a new folder below
    `~/.phalanx/functions` (or `folder`, or PHALANX_FUNCTIONS), which must be on a file system that all nodes share.
    The function imports its own modules, and returns a value that JSON can hold.
    """

    def made(function: Callable[..., R]) -> GangFunction[R]:
        return GangFunction(function, cluster, folder, {"gpus": gpus, "nodes": nodes, **fields})

    return made
