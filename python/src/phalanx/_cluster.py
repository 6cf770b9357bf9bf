"""The cluster, as a Python object."""

from __future__ import annotations

import itertools
import json
import os
import re
import ssl
import uuid
import weakref
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union, cast

from . import _frames
from ._api import Api
from ._connect import find_access, trust
from ._display import Table, html_table
from ._file import Command, Duration, File, Gpus, job_file
from ._job import JOB_COLUMNS, Job, job_row
from ._node import Node, NodeList
from ._reports import Bill, DryRun, Health
from ._schemas import (
    AuditView,
    HistoryView,
    JobFile,
    JobView,
    NodeView,
    OverviewView,
    QueueView,
    UserView,
    Version,
    WhatIfAsk,
    WhatIfView,
)
from ._transport import Transport
from ._watch import ChangeStream

if TYPE_CHECKING:
    import networkx  # type: ignore[import-untyped,unused-ignore]
    import pandas


# A YAML or JSON file that names its own key, over which one of ours would win.
KEY_LINE = re.compile(r"""^[\s{]*["']?key["']?\s*:""", re.MULTILINE)


NODES_OF_A_PAGE = 1000


class JobList:
    """Jobs, the newest first. Iterating reads page after page."""

    def __init__(self, api: Api, query: Dict[str, Any], page: int, limit: Optional[int]) -> None:
        self._api, self._query, self._limit = api, query, limit
        self._page = page if limit is None else max(1, min(page, limit))

    def __iter__(self) -> Iterator[Job]:
        return itertools.islice(self._all(), self._limit)

    def _all(self) -> Iterator[Job]:
        after: Optional[int] = None
        while True:
            part = self._api.list_jobs(**self._query, limit=self._page, after=after)
            for view in part["items"]:
                yield Job(self._api, view)
            text = part.get("next")
            if not text:
                return
            after = int(text)

    def _repr_html_(self) -> str:
        return html_table(JOB_COLUMNS, (job_row(job) for job in itertools.islice(self, self._page)))


class Cluster:
    """A cluster of Phalanx. Make one with `Cluster.connect()`; `with` closes it. Threads may share it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.api = Api(transport)
        """Every operation of the API, as documents."""
        self._finalizer = weakref.finalize(self, transport.close)

    @classmethod
    def connect(
        cls,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        timeout: float = 30.0,
        retries: int = 4,
        ca_file: Union[str, "os.PathLike[str]", None] = None,
        tls: Optional[ssl.SSLContext] = None,
    ) -> "Cluster":
        """Connects with these arguments, else with PHALANX_URL, PHALANX_TOKEN and PHALANX_CA_FILE.

        Without an address it asks the daemon on this machine at its socket, which needs no token. `unix:PATH` is the
        address of a socket elsewhere. `timeout` is in seconds for one request, and `retries` is how often a safe one is
        repeated. An `https` server is trusted if an authority of `ca_file` (PEM) signed its certificate, without it one
        of the system.
        """
        access = find_access(url, token)
        transport = Transport(access.url, access.token, timeout=timeout, retries=retries, tls=tls or trust(ca_file))
        cluster = cls(transport)
        try:
            cluster.user()
        except BaseException:
            cluster.close()
            raise
        return cluster

    @property
    def url(self) -> str:
        return self._transport.url

    def close(self) -> None:
        """Closes all connections."""
        self._finalizer()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        command: Optional[Command] = None,
        *,
        file: Optional[File] = None,
        gpus: Optional[Gpus] = None,
        gpus_per_node: Optional[Gpus] = None,
        nodes: Any = None,
        ranks: Optional[int] = None,
        name: Optional[str] = None,
        queue: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        time_limit: Optional[Duration] = None,
        key: Optional[str] = None,
        **file_fields: Any,
    ) -> Job:
        """Submits a job: a command, or a job file.

        A list is a program with arguments; text runs in bash. `gpus` counts the GPUs of the whole job, such as `8` or
        `"H100:8"`. Other fields of the job file may follow by name. `file` is the path of a YAML or JSON file, or its
        fields as a dict. Two submissions of a user with one `key` are one job; without a key, one is made, so that a
        retried request submits once. The job starts in the home of the user unless `workdir` names a folder.
        """
        body = job_file(
            command, file=file, gpus=gpus, gpus_per_node=gpus_per_node, nodes=nodes, ranks=ranks, name=name,
            queue=queue, env=env, time_limit=time_limit, **file_fields,
        )  # fmt: skip
        return Job(self.api, self._submitted(body, key))

    def _submitted(self, body: Union[JobFile, str], key: Optional[str]) -> JobView:
        if key is None and not isinstance(body, str) and body.get("key") is not None:
            key = str(body["key"])
        if key is None and not (isinstance(body, str) and KEY_LINE.search(body)):
            key = uuid.uuid4().hex
        return self.api.get_job(str(self.api.submit_job(body, key=key)["job"]))

    def dry_run(self, command: Optional[Command] = None, *, file: Optional[File] = None, **fields: Any) -> DryRun:
        """The expected start and placement of a job. Takes the arguments of `submit`, and submits nothing."""
        fields.pop("key", None)
        return DryRun(self.api.dry_run_job(job_file(command, file=file, **fields)))

    def what_if(
        self,
        *,
        set: Optional[Mapping[str, Any]] = None,
        drain: Sequence[str] = (),
        add_nodes: Optional[Mapping[str, int]] = None,
        job: Union[Mapping[str, Any], str, None] = None,
        queues: Union[Mapping[str, Any], str, None] = None,
        horizon: Optional[str] = None,
    ) -> WhatIfView:
        """What would change, predicted by the simulator from a snapshot of now; nothing is changed. For operators.

        `set` has values of the queue file by path, such as `{"queues.research.weight": 2}`, and `add_nodes` numbers of
        nodes by domain. `job` and `queues` are the text or the fields of a job file and of a queue file.
        """
        body: Dict[str, Any] = {"set": dict(set or {}), "drain": list(drain), "horizon": horizon}
        body["add_nodes"] = [{"count": count, "domain": domain} for domain, count in (add_nodes or {}).items()]
        for name, file in (("job", job), ("queues", queues)):
            body[name] = file if file is None or isinstance(file, str) else json.dumps(file)
        return self.api.what_if(cast("WhatIfAsk", body))

    def jobs(
        self,
        *,
        finished: bool = False,
        owner: Optional[str] = None,
        queue: Optional[str] = None,
        state: Union[str, Sequence[str], None] = None,
        name: Optional[str] = None,
        limit: Optional[int] = None,
        page: int = 200,
    ) -> JobList:
        """Jobs that have not ended, or all with `finished`. In `name`, `*` stands for any text."""
        words = state if state is None or isinstance(state, str) else ",".join(state)
        query = {"finished": finished or None, "owner": owner, "queue": queue, "state": words, "name": name}
        return JobList(self.api, query, page, limit)

    def job(self, id_or_name: Union[int, str]) -> Job:
        """One job, by number or name; `"7.3"` is task 3 of the array 7."""
        ref = str(id_or_name)
        return Job(self.api, self.api.get_job(ref), ref)

    def nodes(self, *, text: Optional[str] = None, state: Optional[str] = None) -> NodeList:
        """All nodes, or those in whose name, domains, model or jobs this text is, or in this state."""
        return NodeList(Node(self.api, view) for view in self._nodes(text, state))

    def _nodes(self, text: Optional[str], state: Optional[str]) -> Iterator[NodeView]:
        after: Optional[str] = None
        while True:
            part = self.api.list_nodes(text=text, state=state, limit=NODES_OF_A_PAGE, after=after)
            yield from part["nodes"]
            after = part.get("next")
            if after is None:
                return

    def node(self, name: str) -> Node:
        """One node, with its devices, links and health."""
        detail = self.api.get_node(name)
        return Node(self.api, detail["node"], detail)

    def queues(self) -> Table[QueueView]:
        """The queues, parents before their children."""
        columns = ["name", "pending", "running", "devices_held", "devices_wanted"]
        return Table(self.api.list_queues()["items"], columns)

    def health(self) -> Health:
        """Nodes and devices that are not healthy, with the evidence."""
        return Health(self.api.get_health())

    def events(self, limit: Optional[int] = None) -> Table[HistoryView]:
        """The newest events of all jobs, the oldest first."""
        return Table(self.api.list_events(limit=limit)["items"], ["at", "job", "name", "what", "detail"])

    def audit(self, limit: Optional[int] = None) -> Table[AuditView]:
        """The audit log: users and their changes, the oldest first."""
        return Table(self.api.list_audit(limit=limit)["items"], ["at", "user", "verb", "target", "detail", "refused"])

    def watch(self, after: Optional[int] = None) -> ChangeStream:
        """Changes as they come, after this change. If the connection breaks, the client opens the stream
        again after the last change. If the server no longer has the changes in between, a change `reset` follows."""
        return ChangeStream(lambda last: self.api.watch_changes(last_event_id=last), after)

    def overview(self) -> OverviewView:
        """The cluster in numbers."""
        return self.api.get_overview()

    def user(self) -> UserView:
        """The user of the token, and the role."""
        return self.api.get_user()

    def version(self) -> Version:
        return self.api.get_version()

    def bill(
        self,
        by: Sequence[str] = ("queue",),
        *,
        user: Optional[str] = None,
        queue: Optional[str] = None,
        since: Optional[datetime] = None,
        until: Optional[datetime] = None,
    ) -> Bill:
        """Device time and its cost, by queue, user, job, model, state, month, day, hour."""
        words = by if isinstance(by, str) else ",".join(by)
        return Bill(self.api.get_bill(by=words, user=user, queue=queue, since=_ms(since), until=_ms(until)))

    def map(self) -> "networkx.DiGraph":
        """Domains, nodes and devices as a NetworkX graph. Needs `pip install 'phalanx-client[map]'`."""
        return _frames.graph(self.api.get_map())

    def queue_frame(self) -> "pandas.DataFrame":
        """The queues as a pandas frame. Needs `pip install 'phalanx-client[frames]'`."""
        return _frames.queue_frame(self.api.list_queues()["items"])

    def job_frame(self, **query: Any) -> "pandas.DataFrame":
        """Jobs as a pandas frame; takes the arguments of `jobs`. Needs `pip install 'phalanx-client[frames]'`."""
        return _frames.job_frame([job.view for job in self.jobs(**query)])

    def __repr__(self) -> str:
        return f"<Cluster {self.url}>"

    def _repr_html_(self) -> str:
        view = self.overview()
        rows = [[name, count] for part in ("nodes", "devices", "jobs") for name, count in _counts(view, part)]
        return html_table(["what", "count"], rows, self.url)


def _counts(view: OverviewView, part: str) -> List[Any]:
    counts: Mapping[str, Any] = view[part]  # type: ignore[literal-required]
    return [(f"{part} {name}", count) for name, count in counts.items()]


def _ms(at: Optional[datetime]) -> Optional[int]:
    if at is None:
        return None
    if at.tzinfo is None:
        raise ValueError("a time needs a time zone, such as datetime.timezone.utc")
    return int(at.timestamp() * 1000)
