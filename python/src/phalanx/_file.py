"""Job files from arguments."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Union, cast

from ._schemas import JobFile

Command = Union[str, Sequence[str]]
Gpus = Union[int, float, str, Mapping[str, Any]]
Duration = Union[str, timedelta]
File = Union[str, "os.PathLike[str]", Mapping[str, Any]]

FILE_BYTES_MAX = 4 << 20


def job_file(
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
    **fields: Any,
) -> Union[JobFile, str]:
    """The job file that these arguments describe: a document, or the text of a file."""
    named: Dict[str, Any] = {"nodes": nodes, "ranks": ranks, "name": name, "queue": queue, **fields}
    named["env"] = dict(env) if env is not None else None
    named["time_limit"] = _time(time_limit)
    # `class` is a word of Python, so `class_` means it.
    named = {key.rstrip("_"): value for key, value in named.items() if value is not None}
    is_given = bool(named) or command is not None or gpus is not None or gpus_per_node is not None
    if file is not None:
        if is_given:
            raise TypeError("give file= or the fields of a job, not both")
        return _read(file)
    if command is None and not {"run", "roles"} & set(named):
        raise TypeError("give a command, or file=")
    named.update(_program(command))
    resources = dict(named.get("resources") or {})
    wanted = _gpus(gpus, gpus_per_node, nodes)
    if wanted is not None:
        if "gpus" in resources:
            raise TypeError("give gpus= or resources={'gpus': …}, not both")
        resources["gpus"] = wanted
    if resources:
        named["resources"] = resources
    return cast(JobFile, named)


def _program(command: Optional[Command]) -> Dict[str, Any]:
    if command is None:
        return {}
    if isinstance(command, str):
        return {"run": command}
    return {"command": [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in command]}


def _read(file: File) -> Union[JobFile, str]:
    if isinstance(file, Mapping):
        return cast(JobFile, dict(file))
    path = Path(file)
    if path.stat().st_size > FILE_BYTES_MAX:
        raise ValueError(f"{path} has more than {FILE_BYTES_MAX} bytes; put large values into files")
    return path.read_text(encoding="utf-8")


def _gpus(total: Optional[Gpus], per_node: Optional[Gpus], nodes: Any) -> Optional[Gpus]:
    """GPUs as a job file counts them: of each node if the number of nodes is given, else of the job."""
    count = nodes.get("count") if isinstance(nodes, Mapping) else nodes
    if per_node is not None:
        if total is not None:
            raise TypeError("give gpus= for the whole job or gpus_per_node=, not both")
        if not isinstance(count, int):
            raise TypeError("gpus_per_node= needs the number of nodes")
        return per_node
    if total is None or not isinstance(count, int) or count <= 1:
        return total
    model, number = _counted(total)
    if number is None:
        return total
    if number % count:
        raise ValueError(f"{number} GPUs cannot be divided among {count} nodes; give gpus_per_node=")
    each = number // count
    return f"{model}:{each}" if model else each


def _counted(gpus: Gpus) -> "tuple[str, Optional[int]]":
    """The model and the number of whole GPUs; no number for a part of a GPU."""
    if isinstance(gpus, int):
        return "", gpus
    found = re.fullmatch(r"(?:(.+):)?([0-9]+)", gpus) if isinstance(gpus, str) else None
    return (found.group(1) or "", int(found.group(2))) if found else ("", None)


def _time(limit: Optional[Duration]) -> Optional[str]:
    """A time with its unit: a bare number is minutes for Slurm and seconds for Python, so it is refused."""
    if limit is None:
        return None
    if isinstance(limit, timedelta):
        return f"{max(1, round(limit.total_seconds()))}s"
    if isinstance(limit, str) and not limit.strip().isdigit():
        return limit
    raise TypeError(f"time_limit={limit!r} has no unit; give '90m' or datetime.timedelta(minutes=90)")
