"""Exceptions. `str()` of each gives the problem and the next step."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Type


class FieldError(NamedTuple):
    """A problem with one field of a request."""

    field: str
    """A parameter, or the path of a field of the body: `resources.gpus`."""
    detail: str


class PhalanxError(Exception):
    """A request failed. Subclasses say how."""

    def __init__(
        self,
        detail: str,
        *,
        hint: str = "",
        status: Optional[int] = None,
        code: str = "",
        errors: Optional[List[FieldError]] = None,
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        """The problem."""
        self.hint = hint
        """The next step; may be empty."""
        self.status = status
        """The HTTP status; `None` if no answer came."""
        self.code = code
        """A stable word, such as `not_found`."""
        self.errors = list(errors or [])
        """The fields that are wrong, if the server named them."""
        self.retry_after = retry_after
        """Seconds after which the server asks to be tried again."""

    def __str__(self) -> str:
        return f"{self.detail}\nhint: {self.hint}" if self.hint else self.detail


class BadRequest(PhalanxError):
    """The request is wrong; `errors` names the fields."""


class Unauthorized(PhalanxError):
    """The token is missing, unknown or expired."""


class Forbidden(PhalanxError):
    """The user of the token may not do this."""


class NotFound(PhalanxError):
    """There is no such job, node or queue."""


class Rejected(PhalanxError):
    """The cluster can never run this job."""


class TooManyRequests(PhalanxError):
    """The user sent too many requests; `retry_after` says when to go on."""


class Unavailable(PhalanxError):
    """The scheduler does not answer, or not now."""


class WaitTimeout(PhalanxError, TimeoutError):
    """A job did not end in time. The job goes on."""


class JobFailed(PhalanxError):
    """A job ended otherwise than by success."""


class NotShippable(PhalanxError, TypeError):
    """A function or an argument cannot be sent to a job."""


_BY_STATUS: Dict[int, Type[PhalanxError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    422: Rejected,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def kind_of(status: int) -> Type[PhalanxError]:
    """The exception for a status."""
    usual = BadRequest if 400 <= status < 500 else PhalanxError
    return _BY_STATUS.get(status, usual)


def from_problem(problem: Mapping[str, Any], status: int, retry_after: Optional[float] = None) -> PhalanxError:
    """The exception for a problem document."""
    errors = [
        FieldError(str(one.get("field", "")), str(one.get("detail", "")))
        for one in problem.get("errors") or []
        if isinstance(one, dict)
    ]
    return kind_of(status)(
        str(problem.get("detail") or problem.get("title") or f"HTTP status {status}"),
        hint=str(problem.get("hint") or ""),
        status=status,
        code=str(problem.get("code") or ""),
        errors=errors,
        retry_after=retry_after,
    )


def from_answer(status: int, headers: Mapping[str, str], body: bytes) -> PhalanxError:
    """The exception for an answer that is no success."""
    retry_after = seconds(headers.get("retry-after"))
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": f"the server answered with HTTP status {status}", "hint": "check the address"}
    return from_problem(problem, status, retry_after)


def seconds(text: Optional[str]) -> Optional[float]:
    """A `Retry-After` in seconds. A date is passed over."""
    return float(text) if text is not None and text.strip().isdigit() else None
