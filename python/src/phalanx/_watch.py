"""Changes of the cluster as they come, across broken connections."""

from __future__ import annotations

import time
from typing import Callable, Iterator, NamedTuple, Optional

from ._errors import TooManyRequests, Unavailable
from ._stream import Event, EventStream
from ._transport import backoff

FAILURES_MAX = 6
# The server has dropped the changes after this one, so it answers with the number of the last change.
BEFORE_ALL = 0


class Change(NamedTuple):
    """Something changed. Read it again to see how."""

    id: int
    kind: str
    """job, node, queues; or reset: changes were missed, so read everything again."""
    what: str
    """A word for the change: placed, running, cordoned."""
    at: Optional[int] = None
    """Unix milliseconds."""
    job: Optional[int] = None
    node: Optional[str] = None


class ChangeStream(Iterator[Change]):
    """Iterates over changes without end. A broken stream is opened again after the last change that was seen."""

    def __init__(
        self,
        open_stream: Callable[[Optional[int]], EventStream],
        after: Optional[int] = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.last_id = after
        """The last change that was seen: `cluster.watch(after=…)` goes on from there."""
        self._open, self._sleep = open_stream, sleep
        self._is_closed, self._failures = False, 0
        self._first: Optional[Change] = None
        self._events: Optional[EventStream] = open_stream(BEFORE_ALL if after is None else after)
        if after is None:
            self._begin()

    def _begin(self) -> None:
        """Waits for the number of the last change, so that every change from now on is seen."""
        change = _change(next(self._events)) if self._events is not None else None
        if change is not None and change.kind != "reset":
            self._first = change
        elif change is not None:
            self.last_id = change.id

    def __iter__(self) -> "ChangeStream":
        return self

    def __next__(self) -> Change:
        if self._first is not None:
            first, self._first = self._first, None
            self.last_id = first.id
            return first
        while not self._is_closed:
            try:
                if self._events is None:
                    self._events = self._open(self.last_id)
                event = next(self._events, None)
            except (Unavailable, TooManyRequests) as error:
                self._failed(error)
                continue
            if event is None:
                self._failed(Unavailable("the server ended the stream of changes", hint="is the daemon running?"))
                continue
            change = _change(event)
            if change is not None:
                self._failures, self.last_id = 0, change.id
                return change
        raise StopIteration

    def _failed(self, error: "Unavailable | TooManyRequests") -> None:
        """Waits before the next attempt; gives up after several in a row."""
        events, self._events = self._events, None
        if events is not None:
            events.close()
        self._failures += 1
        if self._failures > FAILURES_MAX and not self._is_closed:
            raise error
        if not self._is_closed:
            self._sleep(backoff(self._failures, error.retry_after))

    def close(self) -> None:
        """Ends the iteration; any thread may call it."""
        self._is_closed = True
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> "ChangeStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _change(event: Event) -> Optional[Change]:
    data = event.data
    if event.name == "reset":
        return Change(int(data["id"]), "reset", "reset")
    if event.name != "change":
        return None
    return Change(data["id"], data["kind"], data["what"], data["at"], data.get("job"), data.get("node"))
