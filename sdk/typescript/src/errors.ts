/** What goes wrong, and what a handler may throw. */

import type { Problem } from "./records.js";

/** Whatever this library throws. */
export class OncewardError extends Error {
  override name = this.constructor.name;
}

/** No answer from the server. Whether the call was carried out is not known. */
export class Unreachable extends OncewardError {
  /** Nobody was there to hear it, so that nothing was carried out. */
  readonly unheard: boolean;

  constructor(message: string, options: ErrorOptions & { unheard?: boolean } = {}) {
    super(message, options);
    this.unheard = options.unheard ?? false;
  }
}

/** The server answered, and the answer is no. `problem` says why. */
export class Refused extends OncewardError {
  constructor(readonly problem: Problem) {
    const said = problem.reason ?? problem.detail ?? problem.title;
    super(`${problem.status} ${problem.code}${said ? `: ${said}` : ""}`);
  }

  get code(): string {
    return this.problem.code;
  }

  get status(): number {
    return this.problem.status;
  }
}

/** The job is no longer this worker's: its lease ran out, or it moved on without it. Drop the work. */
export class LeaseLost extends Refused {}

/** An effect has landed: another's, or one's own. Drop the work, it is done. */
export class AlreadyCommitted extends Refused {
  /** The token of the execution that won. */
  get committed(): number | undefined {
    return this.problem.effect?.token;
  }
}

/** The error that suits a problem. */
export function refused(problem: Problem): Refused {
  switch (problem.code) {
    case "lease_lost":
      return new LeaseLost(problem);
    case "already_committed":
      return new AlreadyCommitted(problem);
    default:
      return new Refused(problem);
  }
}

/** Thrown by `Job.check` when the job is to stop. Let it pass through your handler: the job is then given back. */
export class Cancelled extends OncewardError {}

/** Why a job failed, as the server is told. Throw `Retry` or `Fail`. */
export abstract class WorkError extends OncewardError {
  abstract readonly retryable: boolean;

  constructor(
    readonly code: string,
    message = "",
    readonly after?: number,
  ) {
    super(message);
  }
}

/** This attempt failed, another may succeed; not before `after` milliseconds. */
export class Retry extends WorkError {
  readonly retryable = true;

  constructor(code: string, message = "", options: { after?: number } = {}) {
    super(code, message, options.after);
  }
}

/** The job cannot succeed. It is not tried again. */
export class Fail extends WorkError {
  readonly retryable = false;

  constructor(code: string, message = "") {
    super(code, message);
  }
}
