"""The cluster as a NetworkX graph, and lists as pandas frames. Both packages are optional."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from ._schemas import JobView, MapNode, MapView, QueueView

if TYPE_CHECKING:
    import networkx  # type: ignore[import-untyped,unused-ignore]
    import pandas

HELD_BY_OTHERS = -1
TAKES_NO_WORK = -2


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"this needs {name}: pip install 'phalanx-client[{extra}]'") from None


def graph(view: MapView) -> "networkx.DiGraph":
    """A tree: ("domain", …) → ("node", name) → ("device", name, index). `graph.graph` has the levels and the jobs."""
    tree = _package("networkx", "map").DiGraph(
        levels=list(view["levels"]), jobs={job["id"]: job for job in view["jobs"]}
    )
    for node in view["nodes"]:
        parent = _add_domains(tree, view["levels"], node["path"])
        key = ("node", node["name"])
        facts = {name: node.get(name) for name in ("name", "model", "admin", "grade")}
        tree.add_node(key, kind="node", **facts)
        if parent is not None:
            tree.add_edge(parent, key)
        for index in range(len(node["devices"])):
            device = ("device", node["name"], index)
            tree.add_node(device, **_device(node, index))
            tree.add_edge(key, device)
    return tree


def _add_domains(tree: Any, levels: Sequence[str], path: Sequence[str]) -> Any:
    parent = None
    for depth, name in enumerate(path, 1):
        key: Tuple[str, ...] = ("domain", *path[:depth])
        tree.add_node(key, kind="domain", name=name, level=levels[depth - 1] if depth <= len(levels) else "")
        if parent is not None:
            tree.add_edge(parent, key)
        parent = key
    return parent


def _device(node: MapNode, index: int) -> Dict[str, Any]:
    held, busy, grades = node["devices"][index], node.get("busy"), node.get("grades")
    states = {None: "free", HELD_BY_OTHERS: "foreign", TAKES_NO_WORK: "closed"}
    return {
        "kind": "device",
        "node": node["name"],
        "index": index,
        "state": states.get(held, "held"),
        "job": held if held is not None and held >= 0 else None,
        "busy": busy[index] if busy else None,
        "grade": grades[index] if grades else "ok",
    }


def queue_frame(queues: Sequence[QueueView]) -> "pandas.DataFrame":
    """One row for each queue. GPUs are whole numbers or parts; `fair_share_gpus` is its entitlement now."""
    rows = [{**{name: queue.get(name) for name in QUEUE_FIELDS}, **_gpus(queue)} for queue in queues]
    frame: pandas.DataFrame = _package("pandas", "frames").DataFrame(rows, columns=[*QUEUE_FIELDS, *GPU_FIELDS])
    return frame


QUEUE_FIELDS = ("name", "pending", "running", "devices_held", "devices_wanted")
GPU_FIELDS = {"used_gpus": "used", "guaranteed_gpus": "guaranteed", "limit_gpus": "limit", "fair_share_gpus": "due"}


def _gpus(queue: QueueView) -> Dict[str, Any]:
    report = queue.get("report") or {}
    goods: Dict[str, Any] = next((of for of in report.get("goods", []) if of.get("resource") == "gpus"), {})
    return {name: _thousandth(goods.get(field)) for name, field in GPU_FIELDS.items()}


def _thousandth(value: Any) -> Any:
    return None if value is None else value / 1000


JOB_FIELDS = ("id", "name", "owner", "queue", "priority", "state", "reason", "exit_code")
JOB_TIMES = ("submitted_at", "started_at", "finished_at")


def job_frame(jobs: Sequence[JobView]) -> "pandas.DataFrame":
    """One row for each job; times in UTC, `waited` and `ran` as durations."""
    lib = _package("pandas", "frames")
    rows: List[Dict[str, Any]] = [_job(job) for job in jobs]
    frame: pandas.DataFrame = lib.DataFrame(rows, columns=[*JOB_FIELDS, "ranks", "gpus", "nodes", *JOB_TIMES])
    for column in JOB_TIMES:
        numbers = lib.to_numeric(frame[column]).astype("Int64")
        frame[column] = lib.to_datetime(numbers, unit="ms", utc=True)
    frame["waited"] = frame["started_at"] - frame["submitted_at"]
    frame["ran"] = frame["finished_at"] - frame["started_at"]
    return frame


def _job(job: JobView) -> Dict[str, Any]:
    members = [member for gang in job["gangs"] for member in gang["members"]]
    return {
        **{name: job.get(name) for name in (*JOB_FIELDS, *JOB_TIMES)},
        "ranks": sum(gang["size"] for gang in job["gangs"]),
        "gpus": sum(gang["size"] * gang["devices_per_member"] for gang in job["gangs"]),
        "nodes": list(dict.fromkeys(member["node"] for member in members)),
    }
