"""Failures as the server accepts them, and the report that replaces one that the server rejects."""

from __future__ import annotations

import math
import re

from .errors import (
    AlreadyCommittedError,
    Failure,
    LeaseLostError,
    RefusedError,
    RetryableFailure,
    TerminalFailure,
)
from .requests import Report
from .retry_policy import is_retryable

#: Lifecycles limit code and message; a longer text must not cost the job its report.
MAX_FAILURE_CHARS = 500

#: What `json` raises for a value that is not JSON.
SERIALIZATION_ERRORS = (TypeError, ValueError, RecursionError)

_VALID_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def failure_from_report_error(error: Exception) -> Failure | None:
    """Returns the failure of a job whose report got this error. None if the worker no longer holds the job, or if the error says
    nothing about the report."""
    if not isinstance(error, RefusedError):
        # The result is not JSON, and a retry would not change it.
        return TerminalFailure("BAD_RESULT", str(error))
    if isinstance(error, (LeaseLostError, AlreadyCommittedError)):
        return None
    if error.status == 413:
        return TerminalFailure("SIZE_EXCEEDED", str(error.problem))
    if error.status in (400, 422):
        return TerminalFailure("BAD_RESULT", str(error.problem))
    if error.status >= 500 and not is_retryable(error):
        # The report itself may cause the error.
        return RetryableFailure(error.code, str(error.problem))
    return None


def fallback_report(report: Report, error: Exception, error_code: str) -> Report | None:
    """Returns the report to send if the server will never accept this one. Without it, the job would run again after each lease."""
    failure = failure_from_report_error(error)
    if failure is None:
        return None
    if report.kind == "commit":
        return Report.fail(report.execution, report.token, sanitize_failure(failure))
    reported = report.extra.get("error")
    if reported is None or failure.retryable:
        return None
    code = reported["code"] if _VALID_CODE.fullmatch(reported["code"]) else error_code
    failure_type = RetryableFailure if reported["retryable"] else TerminalFailure
    fallback = Report.fail(
        report.execution, report.token, failure_type(code, "the server rejected the original error message")
    )
    return None if fallback == report else fallback


def sanitize_failure(failure: Failure) -> Failure:
    failure_type = RetryableFailure if failure.retryable else TerminalFailure
    sanitized = failure_type(_sanitize_text(failure.code), _sanitize_text(failure.message))
    if failure.retry_after is not None and math.isfinite(failure.retry_after) and failure.retry_after >= 0:
        sanitized.retry_after = failure.retry_after
    return sanitized


def _sanitize_text(text: str) -> str:
    """Truncates the text, replaces unpaired surrogates and removes NUL, which the server rejects."""
    return text[:MAX_FAILURE_CHARS].encode("utf-8", "replace").decode().replace("\0", "")
