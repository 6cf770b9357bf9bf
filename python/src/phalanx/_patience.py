"""How long a client waits for a job, and how often it asks."""

from __future__ import annotations

import time
from typing import Optional

from ._errors import PhalanxError, WaitTimeout
from ._fields import JobFields

POLL_FIRST_S = 0.05
POLL_MAX_S = 2.0
OUTAGE_MAX_S = 120.0


class Patience:
    """Pauses between looks at a job, until a timeout."""

    def __init__(self, timeout: Optional[float]) -> None:
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout
        self._pause = POLL_FIRST_S
        self._away_since: Optional[float] = None

    def pause(self, job: JobFields) -> float:
        """Seconds until the next look; `WaitTimeout` after the timeout."""
        left = None if self._end is None else self._end - time.monotonic()
        if left is not None and left <= 0:
            state = job._document()["state"]
            hint = f"the job goes on; {job.detail or 'wait longer'}"
            raise WaitTimeout(f"job {job.id} is {state} after {self._timeout:g} s", hint=hint)
        pause, self._pause = self._pause, min(self._pause * 1.5, POLL_MAX_S)
        return pause if left is None else min(pause, left)

    def bear(self, error: PhalanxError) -> None:
        """The scheduler did not answer; raises the error if it has been away for too long."""
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        if now - self._away_since >= OUTAGE_MAX_S:
            raise error

    def begin_again(self) -> None:
        """The scheduler answered."""
        self._away_since = None
