"""Tables for notebooks and terminals. All text is escaped."""

from __future__ import annotations

from datetime import datetime, timezone
from html import escape
from typing import Any, Iterable, List, Mapping, Optional, Sequence, TypeVar

ROWS_MAX = 200
Row = TypeVar("Row", bound=Mapping[str, Any])


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """An HTML table of cells that are shown as text."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    shown: List[str] = []
    more = 0
    for row in rows:
        if len(shown) == ROWS_MAX:
            more += 1
            continue
        shown.append("<tr>" + "".join(f"<td>{escape(cell(value))}</td>" for value in row) + "</tr>")
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    rest = f"<p>{more} more rows</p>" if more else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{''.join(shown)}</tbody></table>{rest}"


def html_pairs(pairs: Mapping[str, Any], caption: str = "") -> str:
    """An HTML table of names and values; empty values are left out."""
    shown = {name: value for name, value in pairs.items() if value not in (None, "", [])}
    body = "".join(f"<tr><th>{escape(n)}</th><td>{escape(cell(v))}</td></tr>" for n, v in shown.items())
    return f"<table><caption>{escape(caption)}</caption><tbody>{body}</tbody></table>"


def cell(value: Any) -> str:
    """A value as text."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S UTC")
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(one) for one in value)
    return str(value)


def when(milliseconds: Optional[int]) -> Optional[datetime]:
    """A time of the API, in UTC."""
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000.0, timezone.utc)


class Table(List[Row]):
    """A list of documents that a notebook shows as a table."""

    def __init__(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        super().__init__(rows)
        self.columns = list(columns)

    def _repr_html_(self) -> str:
        return html_table(self.columns, ([_shown(row, column) for column in self.columns] for row in self))


def _shown(row: Mapping[str, Any], column: str) -> Any:
    value = row.get(column)
    return when(value) if column == "at" or column.endswith("_at") else value
