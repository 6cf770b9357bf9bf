"""Answers that are more than a list."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Dict, List, Optional

from ._display import html_table, when
from ._schemas import BillView, DryRunView, HealthView

MICRO = 1_000_000
HOUR_US = 3_600 * MICRO


class DryRun:
    """The expected outcome of a submission. `str()` gives the sentences."""

    def __init__(self, view: DryRunView) -> None:
        self.view = view
        self.sentences: List[str] = list(view.get("sentences", []))

    @property
    def is_rejected(self) -> bool:
        """The cluster could never run the job."""
        return self.view.get("rejected") is not None

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return f"<DryRun: {' / '.join(self.sentences)}>"

    def _repr_html_(self) -> str:
        return html_table(["dry run"], ([sentence] for sentence in self.sentences))


class Bill:
    """Device time by use, and its cost by the prices of the cluster file."""

    def __init__(self, view: BillView) -> None:
        self.view = view
        self.by: List[str] = list(view["by"])

    @property
    def until(self) -> Optional[datetime]:
        """Everything up to this time is charged."""
        return when(self.view["until"])

    @property
    def rows(self) -> List[Dict[str, Any]]:
        """One dict for each line: its keys, GPU hours by use, and the cost."""
        return [
            {
                **dict(zip(self.by, line["of"])),
                **{f"{use}_gpu_hours": us / HOUR_US for use, us in line["device_us"].items()},
                "cost": line["cost_micro"] / MICRO,
            }
            for line in self.view["lines"]
        ]

    def __repr__(self) -> str:
        return f"<Bill by {', '.join(self.by)}: {len(self.view['lines'])} lines>"

    def _repr_html_(self) -> str:
        rows = self.rows
        names = dict.fromkeys(name for row in rows for name in row if name != "cost")
        columns = [*names, "cost"]
        caption = "more lines were cut off" if self.view.get("is_cut") else ""
        return html_table(columns, ([_short(row.get(column)) for column in columns] for row in rows), caption)


class Health:
    """Nodes and devices that are not healthy, worst first."""

    def __init__(self, view: HealthView) -> None:
        self.view = view

    @property
    def lines(self) -> List[Any]:
        """The findings with their evidence."""
        return list(self.view["lines"])

    @property
    def is_ok(self) -> bool:
        """There are no findings."""
        return not self.view["lines"]

    def __repr__(self) -> str:
        return f"<Health: {len(self.lines)} findings on {self.view['devices']} devices>"

    def _repr_html_(self) -> str:
        columns = list(dict.fromkeys(name for line in self.lines for name in line))
        caption = f"{len(self.lines)} findings on {self.view['devices']} devices"
        return html_table(columns, ([line.get(column) for column in columns] for line in self.lines), caption)


def _short(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else value
