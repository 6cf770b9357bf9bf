"""Python client of Phalanx, a gang scheduler for GPUs.

from phalanx import Cluster

with Cluster.connect() as cluster:
    job = cluster.submit(["python3", "train.py"], gpus=8)
    for entry in job.logs():
        print(entry)
"""

from ._aio import AsyncCluster, AsyncJob, AsyncNode
from ._api import Api
from ._cluster import Cluster, JobList
from ._errors import (
    BadRequest,
    FieldError,
    Forbidden,
    JobFailed,
    NotFound,
    NotShippable,
    PhalanxError,
    Rejected,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    WaitTimeout,
)
from ._gang import FunctionJob, GangFunction, gang
from ._job import Job, LogEntry, LogStream, Why
from ._node import Node, NodeList
from ._reports import Bill, DryRun, Health
from ._watch import Change, ChangeStream

__version__ = "0.1.0"

__all__ = [
    "Api",
    "AsyncCluster",
    "AsyncJob",
    "AsyncNode",
    "BadRequest",
    "Bill",
    "Change",
    "ChangeStream",
    "Cluster",
    "DryRun",
    "FieldError",
    "Forbidden",
    "FunctionJob",
    "GangFunction",
    "Health",
    "Job",
    "JobFailed",
    "JobList",
    "LogEntry",
    "LogStream",
    "Node",
    "NodeList",
    "NotFound",
    "NotShippable",
    "PhalanxError",
    "Rejected",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "WaitTimeout",
    "Why",
    "gang",
]
