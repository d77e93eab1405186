"""How a failure is told to the server, and what is told where a report is not taken."""

from __future__ import annotations

import math
import re

from .errors import AlreadyCommitted, Fail, LeaseLost, OncewardError, Refused, Retry, WorkError
from .requests import Report

#: Characters of an exception's text that are told to the server.
SHORT = 500

#: What `json` raises where no JSON can be made of something.
UNSPEAKABLE = (TypeError, ValueError, RecursionError)

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def failure_of(error: Exception) -> WorkError | None:
    """What becomes of a job whose report was answered so; None where the job is no longer ours, or the answer says nothing of the
    report."""
    if not isinstance(error, Refused):
        # Tried again, it would be the same.
        return Fail("BAD_RESULT", str(error))
    if isinstance(error, (LeaseLost, AlreadyCommitted)):
        return None
    if error.status == 413:
        return Fail("SIZE_EXCEEDED", str(error.problem))
    if error.status in (400, 422):
        return Fail("BAD_RESULT", str(error.problem))
    return Retry(error.code, str(error.problem)) if is_broken(error) else None


def instead(report: Report, error: Exception, error_code: str) -> Report | None:
    """What to report where this will never be taken: the job would else run until its lease ends, and again."""
    failure = failure_of(error)
    if failure is None:
        return None
    if report.do == "commit":
        return Report.fail(report.execution, report.token, short(failure))
    told = report.more.get("error")
    if told is None or failure.retryable:
        return None
    code = told["code"] if _PLAIN.fullmatch(told["code"]) else error_code
    plain = (Retry if told["retryable"] else Fail)(code, "its own words were not taken")
    other = Report.fail(report.execution, report.token, plain)
    return None if other == report else other


def is_broken(error: OncewardError) -> bool:
    """Whether it may be this very report that the server breaks at. The others tell of a server that is busy, full or away."""
    return isinstance(error, Refused) and error.status >= 500 and error.status not in (502, 503, 504, 507)


def short(error: WorkError) -> WorkError:
    kind = Retry if error.retryable else Fail
    told = kind(_clean(error.code), _clean(error.message))
    if error.after is not None and math.isfinite(error.after) and error.after >= 0:
        told.after = error.after
    return told


def _clean(text: str) -> str:
    """As the server takes it: no half of a pair, no NUL."""
    return text[:SHORT].encode("utf-8", "replace").decode().replace("\0", "")
