/** Errors of calls, and failures that a handler throws. */

import type { Problem } from "./types.js";

/** Base class of all errors of this library. */
export class OncewardError extends Error {
  override name = this.constructor.name;
}

/** The server did not answer. */
export class UnreachableError extends OncewardError {
  /** Whether the server certainly did not receive the call. Otherwise the outcome is unknown. */
  readonly notSent: boolean;

  constructor(message: string, options: ErrorOptions & { notSent?: boolean } = {}) {
    super(message, options);
    this.notSent = options.notSent ?? false;
  }
}

/** The server refused the call. `problem` says why. */
export class RefusedError extends OncewardError {
  constructor(readonly problem: Problem) {
    const message = problem.reason ?? problem.detail ?? problem.title;
    super(`${problem.status} ${problem.code}${message ? `: ${message}` : ""}`);
  }

  get code(): string {
    return this.problem.code;
  }

  get status(): number {
    return this.problem.status;
  }
}

/** The worker no longer holds the job: the lease expired, or the record left the leased state. Drop the work. */
export class LeaseLostError extends RefusedError {}

/** The job already has a committed effect, of this or another execution. Drop the work. */
export class AlreadyCommittedError extends RefusedError {
  /** The token of the execution that committed. */
  get committedToken(): number | undefined {
    return this.problem.effect?.token;
  }
}

/** Returns the error for a problem. */
export function errorFromProblem(problem: Problem): RefusedError {
  switch (problem.code) {
    case "lease_lost":
      return new LeaseLostError(problem);
    case "already_committed":
      return new AlreadyCommittedError(problem);
    default:
      return new RefusedError(problem);
  }
}

/** The job must stop. If a handler lets it propagate, the worker yields the job. */
export class JobStoppedError extends OncewardError {}

/** Why a job failed. Throw `RetryableFailure` or `TerminalFailure`. */
export abstract class Failure extends OncewardError {
  abstract readonly retryable: boolean;

  constructor(
    readonly code: string,
    message = "",
    readonly retryAfter?: number,
  ) {
    super(message);
  }
}

/** A failure that another attempt may avoid. `retryAfter` is the shortest delay before it, in milliseconds. */
export class RetryableFailure extends Failure {
  readonly retryable = true;

  constructor(code: string, message = "", options: { retryAfter?: number } = {}) {
    super(code, message, options.retryAfter);
  }
}

/** A failure that no retry can avoid. */
export class TerminalFailure extends Failure {
  readonly retryable = false;

  constructor(code: string, message = "") {
    super(code, message);
  }
}
