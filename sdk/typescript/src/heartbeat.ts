/** Sends heartbeats that extend the leases of all running jobs. */

import { MAX_BATCH_ITEMS, type Client } from "./client.js";
import { RefusedError } from "./errors.js";
import type { Job } from "./job.js";
import type { LeaseLength } from "./requests.js";
import { Backoff, isProblemFinal, MAX_TIMER_MILLIS } from "./retry_policy.js";
import { isProblem, type BatchResult, type Problem, type ReportResult } from "./types.js";

/** One heartbeat per third of a lease leaves time for two retries. */
export const HEARTBEATS_PER_LEASE = 3;

/** Bounds the request rate of very short leases, in milliseconds. */
const MIN_HEARTBEAT_INTERVAL = 5;

/** A heartbeat that is due within this part of its interval is sent early, together with those that are due now. */
const EARLY_SEND_FRACTION = 0.1;

/** Every server gets at least this time to answer, in milliseconds. */
const MIN_RESPONSE_TIMEOUT = 250;

export interface HeartbeatCallbacks {
  /** A job still runs one heartbeat after it was asked to stop. */
  onStopIgnored: (job: Job) => void;
  /** The worker no longer holds the job. */
  onLeaseLost: (job: Job, reason: string) => void;
}

/** When the next heartbeat of a job is due. */
interface HeartbeatSchedule {
  readonly job: Job;
  readonly interval: number;
  dueAt: number;
  isStopRequested: boolean;
  /** Whether the last heartbeat failed. Its retry waits for the full backoff and is not sent early. */
  hasFailed: boolean;
}

/** Sends the heartbeats of all jobs of a worker. */
export class HeartbeatScheduler {
  readonly #client: Client;
  readonly #leaseLength: LeaseLength;
  readonly #callbacks: HeartbeatCallbacks;
  readonly #schedules = new Map<Job, HeartbeatSchedule>();
  /** Shared by all jobs, so that heartbeats that failed together are retried together, in one request. */
  #backoff = new Backoff();
  #timer: NodeJS.Timeout | undefined;
  #isSending = false;

  constructor(client: Client, leaseLength: LeaseLength, callbacks: HeartbeatCallbacks) {
    this.#client = client;
    this.#leaseLength = leaseLength;
    this.#callbacks = callbacks;
  }

  add(job: Job): void {
    const interval = Math.max(job.leaseDuration / HEARTBEATS_PER_LEASE, MIN_HEARTBEAT_INTERVAL);
    // Counted from the start of the lease, which is earlier than now if the response was delayed.
    const dueAt = job.leaseExpiresAt - job.leaseDuration + interval;
    this.#schedules.set(job, { job, interval, dueAt, isStopRequested: false, hasFailed: false });
    this.#setTimer();
  }

  remove(job: Job): void {
    this.#schedules.delete(job);
    if (this.#schedules.size === 0) clearTimeout(this.#timer);
  }

  /** Sets the timer to the next heartbeat. */
  #setTimer(): void {
    clearTimeout(this.#timer);
    if (this.#isSending || this.#schedules.size === 0) return;
    const firstDueAt = Math.min(...[...this.#schedules.values()].map((schedule) => schedule.dueAt));
    const delay = Math.min(Math.max(firstDueAt - performance.now(), 0), MAX_TIMER_MILLIS);
    this.#timer = setTimeout(() => void this.#sendDue(), delay);
  }

  async #sendDue(): Promise<void> {
    const [now, all] = [performance.now(), [...this.#schedules.values()]];
    const due = all.filter((schedule) => schedule.dueAt <= now);
    const early = all.filter(
      ({ dueAt, interval, hasFailed }) => dueAt > now && dueAt <= now + interval * EARLY_SEND_FRACTION && !hasFailed,
    );
    this.#isSending = true;
    try {
      if (due.length > 0) await this.#send([...due, ...early].slice(0, MAX_BATCH_ITEMS));
    } finally {
      this.#isSending = false;
      this.#setTimer();
    }
  }

  async #send(due: readonly HeartbeatSchedule[]): Promise<void> {
    const sentAt = performance.now();
    // A request that hangs must not delay the other heartbeats until their leases expire.
    const intervals = [...this.#schedules.values()].map((schedule) => schedule.interval);
    const remainingLeases = due.map((schedule) => schedule.job.leaseExpiresAt - sentAt);
    const { responseTimeout } = this.#client.retryPolicy;
    const timeout = Math.max(Math.min(responseTimeout, ...intervals, ...remainingLeases), MIN_RESPONSE_TIMEOUT);
    const [results, retryAfter] = await this.#request(due, timeout);
    const failed = due.filter(
      (schedule, index) => this.#schedules.has(schedule.job) && !this.#handleResult(schedule, results[index], sentAt),
    );
    if (failed.length === 0) {
      this.#backoff = new Backoff();
      return;
    }
    const now = performance.now();
    const delays = results.map((result) => (result && isProblem(result) ? (result.retry_after_ms ?? 0) : 0));
    const delay = this.#backoff.nextDelay(Math.max(retryAfter, ...delays));
    for (const schedule of failed) {
      schedule.hasFailed = true;
      // Retry within one interval, even if the server asks for more: after two missed intervals the lease expires.
      schedule.dueAt = Math.min(now + Math.min(delay, schedule.interval), Math.max(schedule.job.leaseExpiresAt, now));
    }
  }

  /**
   * Returns the result of each heartbeat, undefined without an answer, and the delay that the server asked for if it refused the whole
   * request.
   */
  async #request(
    due: readonly HeartbeatSchedule[],
    timeout: number,
  ): Promise<[readonly (BatchResult | ReportResult | Problem | undefined)[], number]> {
    const reports = due.map(({ job: { execution, token } }) => ({
      execution,
      token,
      kind: "heartbeat" as const,
      ...this.#leaseLength,
    }));
    const [first] = reports;
    try {
      if (reports.length === 1 && first !== undefined) return [[await this.#client.reportOnce(first, timeout)], 0];
      return [await this.#client.reportBatchOnce(reports, timeout), 0];
    } catch (error) {
      // Any other error also means no answer: if this loop ended, every lease would expire.
      if (!(error instanceof RefusedError)) return [[], 0];
      return [reports.length === 1 ? [error.problem] : [], error.problem.retry_after_ms ?? 0];
    }
  }

  /** Returns false if the heartbeat must be retried. */
  #handleResult(schedule: HeartbeatSchedule, result: BatchResult | ReportResult | Problem | undefined, sentAt: number): boolean {
    const { job } = schedule;
    if (result !== undefined && !isProblem(result)) {
      job.extendLease(sentAt);
      schedule.hasFailed = false;
      schedule.dueAt = sentAt + schedule.interval;
      if (result.stop && schedule.isStopRequested) this.#callbacks.onStopIgnored(job);
      else if (result.stop) job.requestStop("stop");
      schedule.isStopRequested ||= result.stop === true;
      return true;
    }
    // A temporary error says nothing about the lease.
    const isLost = result !== undefined && isProblemFinal(result);
    if (!isLost && performance.now() < job.leaseExpiresAt) return false;
    this.remove(job);
    // A refusal after the final report is expected, because the report ended the lease.
    if (!isLost || !job.isReportClaimed) {
      this.#callbacks.onLeaseLost(job, result === undefined ? "the server did not answer" : new RefusedError(result).message);
      job.requestStop("lease_lost");
    }
    return true;
  }
}
