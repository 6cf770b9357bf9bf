"""One job: wait for it, read its output, ask why it waits, change it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, TypeVar

from ._display import Table, html_table
from ._errors import JobFailed, TooManyRequests, Unavailable
from ._fields import JobFields
from ._patience import Patience
from ._schemas import EventView, JobUpdate, JobView, WhyView
from ._stream import EventStream, broken

if TYPE_CHECKING:
    from ._api import Api

SelfJob = TypeVar("SelfJob", bound="Job")


class LogEntry(NamedTuple):
    """A line that a rank wrote."""

    rank: int
    line: str
    task: Optional[int] = None
    """The number of the task of an array."""
    attempt: int = 1
    at: Optional[int] = None
    """When it was written, in Unix milliseconds, if `timestamps=True`."""

    def __str__(self) -> str:
        return f"{self.rank}: {self.line}"


class LogStream(Iterator[LogEntry]):
    """Lines of a job, as they come. `close` ends it; `with` closes it."""

    def __init__(self, events: EventStream) -> None:
        self._events = events

    def __iter__(self) -> "LogStream":
        return self

    def __next__(self) -> LogEntry:
        for event in self._events:
            if event.name == "end":
                self.close()
                raise StopIteration
            if event.name == "log":
                data = event.data
                return LogEntry(data["rank"], data["line"], data.get("task"), data["attempt"], data.get("at"))
        if self._events.is_closed_here:
            raise StopIteration
        raise broken("the server ended it before the job's output was complete")

    def close(self) -> None:
        self._events.close()

    def __enter__(self) -> "LogStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Why:
    """The reasons of a pending job, and the changes that would start it. `str()` gives the sentences."""

    def __init__(self, view: WhyView) -> None:
        self.view = view
        """The whole answer, with the reports in numbers."""
        self.sentences: List[str] = list(view.get("sentences", []))

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return f"<Why job {self.view['job']['id']}: {' / '.join(self.sentences)}>"

    def _repr_html_(self) -> str:
        job = self.view["job"]
        return html_table([f"job {job['id']} ({job['name']}): {job['state']}"], ([s] for s in self.sentences))


class Job(JobFields):
    """A job of the cluster. Its fields are as of the last `refresh`; `state` asks the cluster."""

    def __init__(self, api: "Api", view: JobView, ref: Optional[str] = None) -> None:
        self._api = api
        self.view = view
        """The last document of this job."""
        is_task = ref is not None and re.fullmatch(r"\d+\.\d+", ref) is not None
        self._ref = ref if is_task and ref is not None else str(view["id"])

    def _document(self) -> JobView:
        return self.view

    @property
    def state(self) -> str:
        """pending, starting, running, stopping, succeeded, failed, cancelled or time_limit, as of now."""
        return self.view["state"] if self.is_over else self.refresh().view["state"]

    def refresh(self: SelfJob) -> SelfJob:
        """Reads the job again."""
        self.view = self._api.get_job(self._ref)
        return self

    def wait(self: SelfJob, timeout: Optional[float] = None, *, check: bool = False) -> SelfJob:
        """Returns when the job has ended. After `timeout` seconds: `WaitTimeout`.

        With `check=True` a job that did not succeed raises `JobFailed`. The cluster is asked every two seconds, and may
        be away for two minutes, as while it restarts: the job goes on meanwhile.
        """
        patience = Patience(timeout)
        while not self._look(patience):
            time.sleep(patience.pause(self))
        return self.checked() if check else self

    def _look(self, patience: "Patience") -> bool:
        """Reads the job; whether it has ended. A scheduler that does not answer is asked again later."""
        try:
            self.refresh()
        except (Unavailable, TooManyRequests) as error:
            patience.bear(error)
            return False
        patience.begin_again()
        return self.is_over

    def checked(self: SelfJob) -> SelfJob:
        """This job; `JobFailed` if it ended otherwise than by success."""
        if self.is_over and not self.succeeded:
            detail = f"job {self._ref} ({self.name}) ended: {self.view['state']}: {self.detail}"
            raise JobFailed(detail, hint="read its output with job.logs(follow=False)", code=self.reason)
        return self

    def logs(
        self,
        follow: bool = True,
        rank: Optional[int] = None,
        *,
        attempt: Optional[int] = None,
        tail: Optional[int] = None,
        timestamps: bool = False,
    ) -> LogStream:
        """The lines of its ranks. With `follow`, also those to come, until the job has ended."""
        events = self._api.follow_job_logs(
            self._ref, rank=rank, attempt=attempt, tail=tail, follow=follow, timestamps=timestamps
        )
        return LogStream(events)

    def why(self) -> Why:
        """Why the job is pending, which changes would start it, and its estimated start."""
        return Why(self._api.explain_job(self._ref))

    def events(self, limit: Optional[int] = None) -> Table[EventView]:
        """The events of the job, the oldest first."""
        return Table(self._api.list_job_events(self._ref, limit=limit)["items"], ["at", "what", "detail"])

    def cancel(self) -> str:
        """Stops the job for good. Returns the scheduler's answer."""
        return self._api.cancel_job(self._ref)["detail"]

    def hold(self) -> str:
        """The job does not start until it is released; ranks that run go on."""
        return self._api.hold_job(self._ref)["detail"]

    def release(self) -> str:
        """Ends a hold."""
        return self._api.release_job(self._ref)["detail"]

    def requeue(self, *, hold: bool = False) -> str:
        """Stops the ranks, and queues the job again; with `hold`, it starts only after `release`."""
        return self._api.requeue_job(self._ref, {"hold": hold})["detail"]

    def update(
        self, *, priority: Optional[int] = None, queue: Optional[str] = None, time_limit_ms: Optional[int] = None
    ) -> str:
        """Changes the priority, the queue or the time limit of a job that has not ended."""
        given: Dict[str, Any] = {"priority": priority, "queue": queue, "time_limit_ms": time_limit_ms}
        change: JobUpdate = {name: value for name, value in given.items() if value is not None}  # type: ignore[assignment]
        return self._api.update_job(self._ref, change)["detail"]

    def __repr__(self) -> str:
        return f"<Job {self._ref} {self.name!r}: {self.view['state']}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (other._api, other._ref) == (self._api, self._ref)

    def __hash__(self) -> int:
        return hash(self._ref)


JOB_COLUMNS = ["id", "name", "state", "owner", "queue", "reason", "submitted", "detail"]


def job_row(job: Job) -> List[Any]:
    """The cells of a job in a list."""
    view = job.view
    return [job.id, job.name, view["state"], job.owner, job.queue, job.reason, job.submitted_at, job.detail]
