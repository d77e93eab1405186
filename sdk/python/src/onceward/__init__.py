"""Client and workers for Onceward, a durable lifecycle engine.

`Client` speaks to a server; `Worker` runs your functions for jobs, holds their leases and reports what became of them.
"""

from .client import Client
from .errors import (
    AlreadyCommitted,
    Cancelled,
    Fail,
    LeaseLost,
    OncewardError,
    Refused,
    Retry,
    Unreachable,
    WorkError,
)
from .job import Job
from .records import (
    JSON,
    Effect,
    Entry,
    Execution,
    Fired,
    Lease,
    Page,
    Problem,
    Record,
    Reported,
)
from .requests import Event, New, Report
from .stream import Stream
from .worker import Worker

__all__ = [
    "JSON",
    "AlreadyCommitted",
    "Cancelled",
    "Client",
    "Effect",
    "Entry",
    "Event",
    "Execution",
    "Fail",
    "Fired",
    "Job",
    "Lease",
    "LeaseLost",
    "New",
    "OncewardError",
    "Page",
    "Problem",
    "Record",
    "Refused",
    "Report",
    "Reported",
    "Retry",
    "Stream",
    "Unreachable",
    "WorkError",
    "Worker",
]
