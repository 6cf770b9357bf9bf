"""Fields of a job document."""

from __future__ import annotations

from datetime import datetime
from typing import Any, List, Mapping, Optional

from ._display import html_pairs, when
from ._schemas import JobView

ENDED = frozenset({"succeeded", "failed", "cancelled", "time_limit"})


class JobFields:
    """Fields of a job, as of the last refresh."""

    def _document(self) -> JobView:
        raise NotImplementedError

    @property
    def id(self) -> int:
        return self._document()["id"]

    @property
    def name(self) -> str:
        return self._document()["name"]

    @property
    def owner(self) -> str:
        return self._document()["owner"]

    @property
    def queue(self) -> str:
        return self._document()["queue"]

    @property
    def is_over(self) -> bool:
        """Whether the job had ended at the last refresh."""
        return self._document()["state"] in ENDED or self._document().get("finished_at") is not None

    @property
    def succeeded(self) -> bool:
        """Whether the job had ended well at the last refresh."""
        return self._document()["state"] == "succeeded"

    @property
    def exit_code(self) -> Optional[int]:
        return self._document().get("exit_code")

    @property
    def reason(self) -> str:
        """A stable word for why it waits, or how it ended."""
        return self._document()["reason"]

    @property
    def detail(self) -> str:
        """The reason as a sentence."""
        return self._document()["detail"]

    @property
    def submitted_at(self) -> Optional[datetime]:
        return when(self._document()["submitted_at"])

    @property
    def started_at(self) -> Optional[datetime]:
        return when(self._document().get("started_at"))

    @property
    def finished_at(self) -> Optional[datetime]:
        return when(self._document().get("finished_at"))

    @property
    def nodes(self) -> List[str]:
        """The nodes that run it, or ran it last, in rank order."""
        members = [member for gang in self._document()["gangs"] for member in gang["members"]]
        return list(dict.fromkeys(member["node"] for member in members))

    def _repr_html_(self) -> str:
        pairs: Mapping[str, Any] = {
            "state": self._document()["state"],
            "reason": self.reason,
            "detail": self.detail,
            "owner": self.owner,
            "queue": self.queue,
            "nodes": self.nodes,
            "submitted": self.submitted_at,
            "started": self.started_at,
            "finished": self.finished_at,
            "exit code": self.exit_code,
        }
        return html_pairs(pairs, f"job {self.id}: {self.name}")
