/** A job, as a handler gets it. */

import { Cancelled } from "./errors.js";
import type { Lease, Record } from "./records.js";

/** Why a job is to stop: its lifecycle says so, its lease is lost, or the worker shuts down. */
export type Reason = "stop" | "lease_lost" | "shutdown";

/** One attempt at a job. `id` is the same in every attempt, so it is the key for effects outside. */
export class Job<Payload = unknown> {
  readonly record: Record;
  /** The id of this attempt. */
  readonly execution: string;
  readonly token: number;
  readonly attempt: number;
  /** W3C trace context of whoever made the job, where there is some; sent with its reports. */
  readonly traceparent: string | undefined;
  /** The JSON value or the bytes, or what the handler's `decode` made of them. */
  payload: Payload;
  /** Aborted when the job is to stop: hand it to whatever takes a signal. */
  readonly signal: AbortSignal;
  /** Why it is to stop. */
  reason: Reason | undefined;
  /** Whether the effect has landed by `commit`. */
  committed = false;
  /** For the worker: how long the lease lasts after each heartbeat. */
  readonly lasts: number;
  /**
   * For the worker: when the lease is surely gone. The server says how much was left of it; one that does not say it has an answer
   * that may have been long on its way, or found again by its key.
   */
  goneAt: number;
  /** For the worker: when reports are no longer tried, as the worker ends. */
  giveUpAt = Number.POSITIVE_INFINITY;
  readonly #stop = new AbortController();
  readonly #commit: (result: unknown) => Promise<void>;
  #reported = false;

  /** `lasts` overrides what the lifecycle says. */
  constructor(lease: Lease, lasts: number | undefined, commit: (job: Job, result: unknown) => Promise<void>) {
    this.payload = lease.payload as Payload;
    this.record = lease.record;
    this.execution = lease.id;
    this.token = lease.token;
    this.attempt = lease.attempt;
    this.traceparent = lease.traceparent ?? undefined;
    this.signal = this.#stop.signal;
    // Taking it was the newest change of the record.
    const taken = Date.parse(lease.expires_at) - Date.parse(lease.record.updated_at);
    this.lasts = lasts ?? Math.max(taken, lease.expires_in_ms ?? 0);
    this.goneAt = performance.now() + (lease.expires_in_ms ?? this.lasts);
    this.#commit = (result) => commit(this as Job, result);
  }

  get id(): string {
    return this.record.id;
  }

  get fields(): { readonly [name: string]: unknown } {
    return this.record.fields;
  }

  /** Whether the job is to stop. */
  get cancelled(): boolean {
    return this.signal.aborted;
  }

  /** Throws `Cancelled` where the job is to stop. */
  check(): void {
    if (this.cancelled) throw new Cancelled(this.reason ?? "stop");
  }

  /**
   * Lets the effect land now; what the handler does after it is tidying up, and is not repeated. Without this call, what the handler
   * returns is committed. Throws `LeaseLost` or `AlreadyCommitted` where the job is no longer this worker's: let it pass through.
   */
  commit(result?: unknown): Promise<void> {
    return this.#commit(result);
  }

  /** For the worker: tells the handler to stop. */
  cancel(reason: Reason): void {
    if (this.reason === undefined || reason === "lease_lost") this.reason = reason;
    this.#stop.abort(new Cancelled(this.reason));
  }

  /** For the worker: whoever comes first reports how the job ended, and nobody else does. */
  claimReport(): boolean {
    const first = !this.#reported;
    this.#reported = true;
    return first;
  }

  /** For the worker: whether somebody reports how it ended, or has. */
  get reported(): boolean {
    return this.#reported;
  }

  /** For the worker: the heartbeat that was sent then was answered. The lease was prolonged at that time or later. */
  kept(sent: number): void {
    this.goneAt = sent + this.lasts;
  }
}
