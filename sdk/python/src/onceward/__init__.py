"""Client and worker library for Onceward, a durable lifecycle engine.

`Client` calls a server. `Worker` leases jobs, runs your handlers, keeps the leases and reports the results.
"""

from .client import Client
from .errors import (
    AlreadyCommittedError,
    Failure,
    JobStoppedError,
    LeaseLostError,
    OncewardError,
    RefusedError,
    RetryableFailure,
    TerminalFailure,
    UnreachableError,
)
from .job import Job, StopReason
from .requests import EventRequest, NewRecord, Report
from .retry_policy import RetryPolicy
from .stream import LogStream
from .types import (
    JSON,
    BatchResult,
    Effect,
    Execution,
    FireResult,
    LeasedJob,
    LogEntry,
    Problem,
    Record,
    RecordPage,
    ReportResult,
)
from .worker import Worker

__all__ = [
    "JSON",
    "AlreadyCommittedError",
    "BatchResult",
    "Client",
    "Effect",
    "EventRequest",
    "Execution",
    "Failure",
    "FireResult",
    "Job",
    "JobStoppedError",
    "LeaseLostError",
    "LeasedJob",
    "LogEntry",
    "LogStream",
    "NewRecord",
    "OncewardError",
    "Problem",
    "Record",
    "RecordPage",
    "RefusedError",
    "Report",
    "ReportResult",
    "RetryPolicy",
    "RetryableFailure",
    "StopReason",
    "TerminalFailure",
    "UnreachableError",
    "Worker",
]
