"""One node: look at it, close it, open it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, List, Optional

from ._display import html_pairs, html_table
from ._schemas import Close, Drain, NodeDetailView, NodeView

if TYPE_CHECKING:
    from ._api import Api

NODE_COLUMNS = ["name", "state", "model", "devices", "free", "path", "jobs"]


class Node:
    """A node of the cluster, as of the last `refresh`."""

    def __init__(self, api: "Api", view: NodeView, detail: Optional[NodeDetailView] = None) -> None:
        self._api = api
        self.view = view
        """The document of this node."""
        self._detail = detail

    @property
    def name(self) -> str:
        return self.view["name"]

    @property
    def state(self) -> str:
        """open, cordoned or draining."""
        return self.view["admin"]

    @property
    def model(self) -> str:
        return self.view["model"]

    @property
    def devices(self) -> int:
        return self.view["devices"]

    @property
    def free(self) -> List[int]:
        """The indices of its free devices."""
        return _bits(self.view["free"])

    @property
    def path(self) -> List[str]:
        """Its domains, outermost first."""
        return list(self.view["path"])

    @property
    def jobs(self) -> List[int]:
        """The jobs that hold devices of it."""
        return sorted({held["job"] for held in self.view["held"]})

    @property
    def detail(self) -> NodeDetailView:
        """Its devices, links and health."""
        if self._detail is None:
            self.refresh()
        assert self._detail is not None
        return self._detail

    @property
    def links(self) -> List[List[str]]:
        """How its devices and NICs are connected, as the matrix of `nvidia-smi topo -m`; names in `link_names`."""
        return self.detail["links"]

    @property
    def link_names(self) -> List[str]:
        return self.detail["link_names"]

    def refresh(self) -> "Node":
        """Reads the node again."""
        self._detail = self._api.get_node(self.name)
        self.view = self._detail["node"]
        return self

    def cordon(self, reason: Optional[str] = None) -> str:
        """The node takes no new jobs; running jobs go on. For operators."""
        body: Close = {} if reason is None else {"reason": reason}
        return self._api.cordon_node(self.name, body)["detail"]

    def drain(self, reason: Optional[str] = None, *, by: Optional[datetime] = None) -> str:
        """Moves the jobs away, now or by a time. For operators."""
        body: Drain = {} if reason is None else {"reason": reason}
        if by is not None:
            if by.tzinfo is None:
                raise ValueError("by= needs a time zone, such as datetime.timezone.utc")
            body["by"] = int(by.timestamp() * 1000)
        return self._api.drain_node(self.name, body)["detail"]

    def uncordon(self) -> str:
        """The node takes work again. For operators."""
        return self._api.uncordon_node(self.name)["detail"]

    def row(self) -> List[object]:
        free = len(self.free)
        return [self.name, self.state, self.model, self.devices, free, "/".join(self.path), self.jobs]

    def __repr__(self) -> str:
        return f"<Node {self.name}: {self.state}, {len(self.free)} of {self.devices} devices free>"

    def _repr_html_(self) -> str:
        pairs = dict(zip(NODE_COLUMNS[1:], self.row()[1:]))
        return html_pairs(pairs, f"node {self.name}")


class NodeList(List[Node]):
    """Nodes, shown as a table."""

    def _repr_html_(self) -> str:
        return html_table(NODE_COLUMNS, (node.row() for node in self))


def _bits(mask: int) -> List[int]:
    return [index for index in range(mask.bit_length()) if mask >> index & 1]
