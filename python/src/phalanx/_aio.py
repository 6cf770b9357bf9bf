"""The cluster for asyncio. Requests run in threads, so the loop goes on, and requests run side by side."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterator, List, Optional, TypeVar, Union, cast

from ._cluster import Cluster
from ._display import Table
from ._fields import JobFields
from ._job import Job, LogEntry, LogStream, Why
from ._node import Node
from ._patience import Patience
from ._reports import Bill, DryRun, Health
from ._schemas import EventView, HistoryView, JobView, OverviewView, QueueView, UserView, WhatIfView
from ._watch import Change, ChangeStream

if TYPE_CHECKING:
    import networkx  # type: ignore[import-untyped,unused-ignore]
    import pandas

# The server answers 32 requests of one user at once.
REQUESTS_MAX = 16
STREAMS_MAX = 64
T = TypeVar("T")


class _Threads:
    """Requests and streams in threads of their own: streams that wait do not hold up requests."""

    def __init__(self) -> None:
        self._requests = ThreadPoolExecutor(REQUESTS_MAX, "phalanx-request")
        self._streams = ThreadPoolExecutor(STREAMS_MAX, "phalanx-stream")

    async def run(self, what: Callable[..., T], *args: Any, **named: Any) -> T:
        call = functools.partial(what, *args, **named)
        return await asyncio.get_running_loop().run_in_executor(self._requests, call)

    async def each(self, open_stream: Callable[[], Union[LogStream, ChangeStream]]) -> AsyncIterator[Any]:
        """The items of a stream, which is closed when the caller stops."""
        loop = asyncio.get_running_loop()
        stream = await loop.run_in_executor(self._streams, open_stream)
        try:
            while True:
                item = await loop.run_in_executor(
                    self._streams, functools.partial(next, cast(Iterator[Any], stream), None)
                )
                if item is None:
                    return
                yield item
        finally:
            stream.close()

    def close(self) -> None:
        self._requests.shutdown(wait=False)
        self._streams.shutdown(wait=False)


class AsyncJob(JobFields):
    """A job, for asyncio. `job.sync` is the same job with blocking calls."""

    def __init__(self, job: Job, threads: _Threads) -> None:
        self.sync = job
        self._threads = threads

    @property
    def view(self) -> JobView:
        """The last document of this job."""
        return self.sync.view

    def _document(self) -> JobView:
        return self.sync.view

    async def state(self) -> str:
        """The state as of now."""
        return await self._threads.run(lambda: self.sync.state)

    async def refresh(self) -> "AsyncJob":
        await self._threads.run(self.sync.refresh)
        return self

    async def wait(self, timeout: Optional[float] = None, *, check: bool = False) -> "AsyncJob":
        """Returns when the job has ended; see `Job.wait`. No thread waits with it."""
        patience = Patience(timeout)
        while not await self._threads.run(self.sync._look, patience):
            await asyncio.sleep(patience.pause(self.sync))
        if check:
            self.sync.checked()
        return self

    async def logs(self, follow: bool = True, rank: Optional[int] = None, **options: Any) -> AsyncIterator[LogEntry]:
        """The lines of its ranks; see `Job.logs`."""
        async for entry in self._threads.each(lambda: self.sync.logs(follow, rank, **options)):
            yield entry

    async def why(self) -> Why:
        return await self._threads.run(self.sync.why)

    async def events(self, limit: Optional[int] = None) -> Table[EventView]:
        return await self._threads.run(self.sync.events, limit)

    async def cancel(self) -> str:
        return await self._threads.run(self.sync.cancel)

    async def hold(self) -> str:
        return await self._threads.run(self.sync.hold)

    async def release(self) -> str:
        return await self._threads.run(self.sync.release)

    async def requeue(self, *, hold: bool = False) -> str:
        return await self._threads.run(self.sync.requeue, hold=hold)

    async def update(self, **change: Any) -> str:
        return await self._threads.run(self.sync.update, **change)

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"


class AsyncNode:
    """A node, for asyncio. `node.sync` has its fields."""

    def __init__(self, node: Node, threads: _Threads) -> None:
        self.sync = node
        self._threads = threads

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def state(self) -> str:
        """open, cordoned or draining, at the last refresh."""
        return self.sync.state

    @property
    def free(self) -> List[int]:
        return self.sync.free

    async def refresh(self) -> "AsyncNode":
        await self._threads.run(self.sync.refresh)
        return self

    async def cordon(self, reason: Optional[str] = None) -> str:
        return await self._threads.run(self.sync.cordon, reason)

    async def drain(self, reason: Optional[str] = None, **options: Any) -> str:
        return await self._threads.run(self.sync.drain, reason, **options)

    async def uncordon(self) -> str:
        return await self._threads.run(self.sync.uncordon)

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"

    def _repr_html_(self) -> str:
        return self.sync._repr_html_()


class AsyncCluster:
    """A cluster, for asyncio: `async with await AsyncCluster.connect() as cluster: …`. See `Cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self.sync = cluster
        """The same cluster with blocking calls."""
        self._threads = _Threads()

    @classmethod
    async def connect(cls, url: Optional[str] = None, token: Optional[str] = None, **options: Any) -> "AsyncCluster":
        """Takes the arguments of `Cluster.connect`."""
        loop = asyncio.get_running_loop()
        return cls(await loop.run_in_executor(None, functools.partial(Cluster.connect, url, token, **options)))

    @property
    def url(self) -> str:
        return self.sync.url

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.sync.close)
        self._threads.close()

    async def __aenter__(self) -> "AsyncCluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def submit(self, command: Any = None, **fields: Any) -> AsyncJob:
        """Takes the arguments of `Cluster.submit`."""
        return AsyncJob(await self._threads.run(self.sync.submit, command, **fields), self._threads)

    async def dry_run(self, command: Any = None, **fields: Any) -> DryRun:
        return await self._threads.run(self.sync.dry_run, command, **fields)

    async def jobs(self, **query: Any) -> AsyncIterator[AsyncJob]:
        """Jobs, page after page; takes the arguments of `Cluster.jobs`."""
        found = iter(self.sync.jobs(**query))
        while True:
            job = await self._threads.run(next, found, None)
            if job is None:
                return
            yield AsyncJob(job, self._threads)

    async def job(self, id_or_name: Union[int, str]) -> AsyncJob:
        return AsyncJob(await self._threads.run(self.sync.job, id_or_name), self._threads)

    async def nodes(self) -> List[AsyncNode]:
        return [AsyncNode(node, self._threads) for node in await self._threads.run(self.sync.nodes)]

    async def node(self, name: str) -> AsyncNode:
        return AsyncNode(await self._threads.run(self.sync.node, name), self._threads)

    async def queues(self) -> Table[QueueView]:
        return await self._threads.run(self.sync.queues)

    async def health(self) -> Health:
        return await self._threads.run(self.sync.health)

    async def events(self, limit: Optional[int] = None) -> Table[HistoryView]:
        return await self._threads.run(self.sync.events, limit)

    async def watch(self, after: Optional[int] = None) -> AsyncIterator[Change]:
        """Changes as they come; see `Cluster.watch`."""
        async for change in self._threads.each(lambda: self.sync.watch(after)):
            yield change

    async def overview(self) -> OverviewView:
        return await self._threads.run(self.sync.overview)

    async def user(self) -> UserView:
        return await self._threads.run(self.sync.user)

    async def bill(self, by: Any = ("queue",), **options: Any) -> Bill:
        return await self._threads.run(self.sync.bill, by, **options)

    async def what_if(self, **changes: Any) -> WhatIfView:
        return await self._threads.run(self.sync.what_if, **changes)

    async def map(self) -> "networkx.DiGraph":
        return await self._threads.run(self.sync.map)

    async def queue_frame(self) -> "pandas.DataFrame":
        return await self._threads.run(self.sync.queue_frame)

    async def job_frame(self, **query: Any) -> "pandas.DataFrame":
        return await self._threads.run(self.sync.job_frame, **query)

    def __repr__(self) -> str:
        return f"<AsyncCluster {self.url}>"
