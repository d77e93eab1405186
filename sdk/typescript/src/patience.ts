/** When to try again, and how long to wait before. */

import { OncewardError, Refused, Unreachable } from "./errors.js";
import type { Problem } from "./records.js";

/** The first wait, and the longest, in milliseconds; each is up to twice as long as the one before. */
const FIRST = 50;
const LONGEST = 5_000;

/** A server that asks for more time than this is asked again after it all the same. */
const LONGEST_ASKED = 30_000;

/** Node's timers take no more, and would fire at once. */
const TIMER = 2 ** 31 - 1;

/**
 * Whether the same call may be taken after a moment. All calls of this library may be repeated: they carry a key, or the token of
 * a lease, or change nothing.
 */
export function mayPass(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof Refused && problemMayPass(error.problem));
}

/** Whether it speaks of the moment, not of the call. A full disk is such a moment, and so is a server that broke once. */
export function problemMayPass(problem: Problem): boolean {
  if (problem.code === "still_running" || problem.status === 429) return true;
  return problem.status >= 500 && problem.status !== 501 && problem.status !== 505;
}

/** Whether the server has understood and said no: there is no use in asking again, now or later. */
export function isFinal(error: unknown): boolean {
  return error instanceof Refused ? problemIsFinal(error.problem) : !(error instanceof Unreachable);
}

export function problemIsFinal(problem: Problem): boolean {
  return problem.status < 500 && !problemMayPass(problem);
}

/** The wait that the server asks for, in milliseconds. */
export function askedOf(error: unknown): number | undefined {
  return error instanceof Refused ? error.problem.retry_after_ms : undefined;
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
    // Not all at the very moment that they were told of.
    return asked <= wait ? wait : Math.min(asked, LONGEST_ASKED) + wait;
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
    const wait = this.#backoff.wait(askedOf(error));
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
    const timer = setTimeout(end, Math.min(milliseconds, TIMER));
    signal?.addEventListener("abort", end);
  });
}
