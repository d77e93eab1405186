/** How a failure is told to the server, and what is told where a report is not taken. */

import { AlreadyCommitted, Fail, LeaseLost, Refused, Retry, WorkError } from "./errors.js";
import { Unspeakable } from "./http.js";
import type { Report } from "./requests.js";

/** Characters of an error's text that are told to the server. */
const SHORT = 500;

const PLAIN = /^[A-Za-z][A-Za-z0-9_.-]{0,99}$/;

/**
 * What becomes of a job whose report was answered so; undefined where the job is no longer ours, or the answer says nothing of the
 * report.
 */
export function failureOf(error: unknown): WorkError | undefined {
  // Tried again, it would be the same.
  if (error instanceof Unspeakable) return new Fail("BAD_RESULT", error.message);
  if (!(error instanceof Refused) || error instanceof LeaseLost || error instanceof AlreadyCommitted) return undefined;
  if (error.status === 413) return new Fail("SIZE_EXCEEDED", error.message);
  if (error.status === 400 || error.status === 422) return new Fail("BAD_RESULT", error.message);
  return isBroken(error) ? new Retry(error.code, error.message) : undefined;
}

/** What to report where this will never be taken: the job would else run until its lease ends, and again. */
export function instead(report: Report, error: unknown, errorCode: string): Report | undefined {
  const failure = failureOf(error);
  if (failure === undefined) return undefined;
  const { execution, token } = report;
  if (report.do === "commit") return { execution, token, do: "fail", error: short(failure) };
  if (report.do !== "fail" || failure.retryable) return undefined;
  const code = PLAIN.test(report.error.code) ? report.error.code : errorCode;
  const message = "its own words were not taken";
  if (report.error.message === message) return undefined;
  return { execution, token, do: "fail", error: report.error.retryable ? new Retry(code, message) : new Fail(code, message) };
}

/** Whether it may be this very report that the server breaks at. The others tell of a server that is busy, full or away. */
export function isBroken(error: unknown): boolean {
  return error instanceof Refused && error.status >= 500 && ![502, 503, 504, 507].includes(error.status);
}

export function short(error: WorkError): WorkError {
  const [code, message] = [clean(error.code), clean(error.message)];
  if (!error.retryable) return new Fail(code, message);
  const after = error.after !== undefined && Number.isFinite(error.after) && error.after >= 0 ? { after: error.after } : {};
  return new Retry(code, message, after);
}

/** As the server takes it: no half of a pair, no NUL. */
function clean(text: string): string {
  // By letters, of which some are pairs; and what was half before becomes a mark.
  const letters = [...text.slice(0, 2 * SHORT)].slice(0, SHORT).join("");
  return Buffer.from(letters).toString().replaceAll("\0", "");
}
