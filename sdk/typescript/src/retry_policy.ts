/** Which calls are retried, for how long and with which delays. */

import { OncewardError, RefusedError, UnreachableError } from "./errors.js";
import type { Problem } from "./types.js";

/** Timeouts of calls and retries, in milliseconds. */
export interface RetryPolicy {
  /** Time for one response. Calls that wait for jobs get this in addition to their wait. */
  readonly responseTimeout: number;
  /** Time from the first attempt of a call to the last. */
  readonly retryTimeout: number;
}

export const DEFAULT_RETRY_POLICY: RetryPolicy = { responseTimeout: 10_000, retryTimeout: 30_000 };

/** The first delay and the longest, in milliseconds. The delay doubles with each retry. */
const INITIAL_RETRY_DELAY = 50;
const MAX_RETRY_DELAY = 5_000;

/** The same as in the Rust worker (`crates/worker/src/error.rs`). */
const RETRYABLE_STATUSES = [429, 502, 503, 504, 507];

/** Bounds the delay that a server may ask for, in milliseconds. */
const MAX_RETRY_AFTER = 30_000;

/** Node's timers fire at once if their delay is longer. */
export const MAX_TIMER_MILLIS = 2 ** 31 - 1;

/**
 * Returns whether the same call may succeed later. Repeating is safe, because every call of this library carries an idempotency key or a
 * fencing token, or changes nothing.
 */
export function isRetryable(error: unknown): boolean {
  return error instanceof UnreachableError || (error instanceof RefusedError && isProblemRetryable(error.problem));
}

/**
 * Returns whether the cause is temporary, for example an overloaded or unavailable server, or a full disk. An internal error (500) is not:
 * the request itself may cause it.
 */
export function isProblemRetryable(problem: Problem): boolean {
  return problem.code === "idempotency_key_in_use" || RETRYABLE_STATUSES.includes(problem.status);
}

/** Returns whether the server refused the call itself, so that no retry can succeed. */
export function isFinal(error: unknown): boolean {
  return error instanceof RefusedError ? isProblemFinal(error.problem) : !(error instanceof UnreachableError);
}

export function isProblemFinal(problem: Problem): boolean {
  return problem.status < 500 && !isProblemRetryable(problem);
}

/** Returns the delay that the server asked for, in milliseconds. */
export function retryAfterOf(error: unknown): number | undefined {
  return error instanceof RefusedError ? error.problem.retry_after_ms : undefined;
}

/** Growing delays with jitter, so that callers that failed together do not retry together. */
export class Backoff {
  #nextDelay: number;

  constructor(readonly maxDelay = MAX_RETRY_DELAY) {
    this.#nextDelay = Math.min(INITIAL_RETRY_DELAY, maxDelay);
  }

  nextDelay(retryAfter = 0): number {
    const delay = this.#nextDelay * (0.5 + Math.random() / 2);
    this.#nextDelay = Math.min(this.#nextDelay * 2, this.maxDelay);
    // Add the jitter to the server's delay, too.
    return retryAfter <= delay ? delay : Math.min(retryAfter, MAX_RETRY_AFTER) + delay;
  }
}

/** Delays the retries of one call and ends them after `retryTimeout`. */
export class RetryTimer {
  readonly #deadline: number;
  readonly #backoff = new Backoff();

  constructor(policy: RetryPolicy) {
    this.#deadline = performance.now() + policy.retryTimeout;
  }

  /** Waits before the next attempt. Throws the error if it is not retryable or the time is over. */
  async waitOrThrow(error: unknown): Promise<void> {
    const delay = this.#backoff.nextDelay(retryAfterOf(error));
    if (!(error instanceof OncewardError) || !isRetryable(error) || performance.now() + delay > this.#deadline) throw error;
    await sleep(delay);
  }
}

/** Sleeps, or returns early if the signal is aborted. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(milliseconds, MAX_TIMER_MILLIS));
    signal?.addEventListener("abort", end);
  });
}
