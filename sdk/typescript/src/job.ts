/** The job that a handler gets. */

import { JobStoppedError } from "./errors.js";
import type { LeasedJob, Record } from "./types.js";

/** Why a job must stop: its lifecycle requests it, its lease is lost, or the worker shuts down. */
export type StopReason = "stop" | "lease_lost" | "shutdown";

/** One attempt at a job. `id` is the same in every attempt: use it as idempotency key for effects outside the store. */
export class Job<Payload = unknown> {
  readonly record: Record;
  /** Id of the execution. */
  readonly execution: string;
  /** Fencing token, part of every report. */
  readonly token: number;
  readonly attempt: number;
  /** W3C trace context, if the creator of the job sent one. The worker sends it with the reports. */
  readonly traceparent: string | undefined;
  /** The JSON value or the bytes, or the result of the handler's `decode`. */
  payload: Payload;
  /** Aborted when the job must stop. Pass it to calls that accept a signal. */
  readonly signal: AbortSignal;
  /** Why the job must stop. */
  stopReason: StopReason | undefined;
  /** Whether `commit` succeeded. */
  isCommitted = false;
  /** For the worker: length of the lease after each heartbeat, in milliseconds. */
  readonly leaseDuration: number;
  /**
   * For the worker: when the lease has certainly expired, by the local clock. A server that does not send the remaining lease gets the
   * whole length, although its response may be late or replayed.
   */
  leaseExpiresAt: number;
  /** For the worker: when it stops retrying reports, because it shuts down. */
  reportDeadline = Number.POSITIVE_INFINITY;
  readonly #abortController = new AbortController();
  readonly #commit: (result: unknown) => Promise<void>;
  #isReportClaimed = false;

  /** `leaseDuration` overrides that of the lifecycle. */
  constructor(leased: LeasedJob, leaseDuration: number | undefined, commit: (job: Job, result: unknown) => Promise<void>) {
    this.payload = leased.payload as Payload;
    this.record = leased.record;
    this.execution = leased.id;
    this.token = leased.token;
    this.attempt = leased.attempt;
    this.traceparent = leased.traceparent ?? undefined;
    this.signal = this.#abortController.signal;
    // Leasing was the record's latest change, so `updated_at` is the start of the lease.
    const lifecycleDuration = Date.parse(leased.expires_at) - Date.parse(leased.record.updated_at);
    this.leaseDuration = leaseDuration ?? Math.max(lifecycleDuration, leased.expires_in_ms ?? 0);
    this.leaseExpiresAt = performance.now() + (leased.expires_in_ms ?? this.leaseDuration);
    this.#commit = (result) => commit(this as Job, result);
  }

  get id(): string {
    return this.record.id;
  }

  get fields(): { readonly [name: string]: unknown } {
    return this.record.fields;
  }

  /** Whether the job must stop. */
  get shouldStop(): boolean {
    return this.signal.aborted;
  }

  /** Throws `JobStoppedError` if the job must stop. */
  throwIfStopping(): void {
    if (this.shouldStop) throw new JobStoppedError(this.stopReason ?? "stop");
  }

  /**
   * Commits the result and lets the handler clean up. The job is not run again after that. Without this call, the worker commits the
   * handler's return value. Throws `LeaseLostError` or `AlreadyCommittedError` if the worker no longer holds the job: let it propagate.
   */
  commit(result?: unknown): Promise<void> {
    return this.#commit(result);
  }

  /** For the worker: asks the handler to stop. A lost lease replaces an earlier reason. */
  requestStop(reason: StopReason): void {
    if (this.stopReason === undefined || reason === "lease_lost") this.stopReason = reason;
    this.#abortController.abort(new JobStoppedError(this.stopReason));
  }

  /** For the worker: returns true to the first caller only, which sends the final report. */
  claimReport(): boolean {
    const isFirst = !this.#isReportClaimed;
    this.#isReportClaimed = true;
    return isFirst;
  }

  /** For the worker: whether the final report is being sent or was sent. */
  get isReportClaimed(): boolean {
    return this.#isReportClaimed;
  }

  /** For the worker: extends the lease after an accepted heartbeat, counted from when it was sent. */
  extendLease(sentAt: number): void {
    this.leaseExpiresAt = sentAt + this.leaseDuration;
  }
}
