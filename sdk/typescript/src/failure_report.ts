/** Failures as the server accepts them, and the report that replaces one that the server rejects. */

import { AlreadyCommittedError, LeaseLostError, RefusedError, RetryableFailure, TerminalFailure, type Failure } from "./errors.js";
import type { Report } from "./requests.js";
import { isRetryable } from "./retry_policy.js";
import { SerializationError } from "./transport.js";

/** Lifecycles limit code and message; a longer text must not cost the job its report. */
const MAX_FAILURE_CHARS = 500;

const VALID_CODE = /^[A-Za-z][A-Za-z0-9_.-]{0,99}$/;

/**
 * Returns the failure of a job whose report got this error. Undefined if the worker no longer holds the job, or if the error says nothing
 * about the report.
 */
export function failureFromReportError(error: unknown): Failure | undefined {
  // The result is not JSON, and a retry would not change it.
  if (error instanceof SerializationError) return new TerminalFailure("BAD_RESULT", error.message);
  if (!(error instanceof RefusedError) || error instanceof LeaseLostError || error instanceof AlreadyCommittedError) {
    return undefined;
  }
  if (error.status === 413) return new TerminalFailure("SIZE_EXCEEDED", error.message);
  if (error.status === 400 || error.status === 422) return new TerminalFailure("BAD_RESULT", error.message);
  // The report itself may cause a server error that is not temporary.
  return error.status >= 500 && !isRetryable(error) ? new RetryableFailure(error.code, error.message) : undefined;
}

/** Returns the report to send if the server will never accept this one. Without it, the job would run again after each lease. */
export function fallbackReport(report: Report, error: unknown, errorCode: string): Report | undefined {
  const failure = failureFromReportError(error);
  if (failure === undefined) return undefined;
  const { execution, token } = report;
  if (report.kind === "commit") return { execution, token, kind: "fail", failure: sanitizeFailure(failure) };
  if (report.kind !== "fail" || failure.retryable) return undefined;
  const code = VALID_CODE.test(report.failure.code) ? report.failure.code : errorCode;
  const message = "the server rejected the original error message";
  if (report.failure.message === message) return undefined;
  const fallback = report.failure.retryable ? new RetryableFailure(code, message) : new TerminalFailure(code, message);
  return { execution, token, kind: "fail", failure: fallback };
}

export function sanitizeFailure(failure: Failure): Failure {
  const [code, message] = [sanitizeText(failure.code), sanitizeText(failure.message)];
  if (!failure.retryable) return new TerminalFailure(code, message);
  const { retryAfter } = failure;
  const isValidDelay = retryAfter !== undefined && Number.isFinite(retryAfter) && retryAfter >= 0;
  return new RetryableFailure(code, message, isValidDelay ? { retryAfter } : {});
}

/** Truncates the text, replaces unpaired surrogates and removes NUL, which the server rejects. */
function sanitizeText(text: string): string {
  // Split into code points, so that no surrogate pair is cut.
  const truncated = [...text.slice(0, 2 * MAX_FAILURE_CHARS)].slice(0, MAX_FAILURE_CHARS).join("");
  return Buffer.from(truncated).toString().replaceAll("\0", "");
}
