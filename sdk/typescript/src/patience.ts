/** When to try again, and how long to wait before. */

import { OncewardError, Refused, Unreachable } from "./errors.js";
import type { Problem } from "./records.js";

/** Answers that speak of the moment, not of the call. */
const PASSING = new Set(["still_running", "rate_limited", "overloaded", "contended"]);

/** The first wait, and the longest, in milliseconds; each is up to twice as long as the one before. */
const FIRST = 50;
const LONGEST = 5_000;

/**
 * Whether the same call may be taken after a moment. All calls of this library may be repeated: they carry a key, or the token of
 * a lease, or change nothing.
 */
export function mayPass(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof Refused && problemMayPass(error.problem));
}

export function problemMayPass(problem: Problem): boolean {
  return PASSING.has(problem.code) || [429, 502, 503, 504, 507].includes(problem.status);
}

/** Whether the server has understood, and said no for good. An error of its own is not that, whatever it may mean. */
export function isFinal(error: unknown): boolean {
  return error instanceof Refused && error.status < 500 && !problemMayPass(error.problem);
}

/** Waits that grow, spread by chance so that callers who failed together do not return together. */
export class Backoff {
  #next: number;

  constructor(readonly longest = LONGEST) {
    this.#next = Math.min(FIRST, longest);
  }

  wait(asked = 0): number {
    const wait = this.#next * (0.5 + Math.random() / 2);
    this.#next = Math.min(this.#next * 2, this.longest);
    return Math.max(wait, Math.min(asked, this.longest));
  }
}

/** How long a call is tried again; the error is thrown when it is over. */
export class Patience {
  readonly #until: number;
  readonly #backoff = new Backoff();

  constructor(milliseconds: number) {
    this.#until = performance.now() + milliseconds;
  }

  /** Waits, or throws what cannot be mended by waiting. */
  async after(error: unknown): Promise<void> {
    const asked = error instanceof Refused ? error.problem.retry_after_ms : undefined;
    const wait = this.#backoff.wait(asked);
    if (!(error instanceof OncewardError) || !mayPass(error) || performance.now() + wait > this.#until) throw error;
    await pause(wait);
  }
}

/** Waits; less long where the signal says so. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener("abort", end);
  });
}
