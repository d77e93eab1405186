/** A worker: leases jobs, runs a handler for each, keeps the leases and reports the results. */

import { createHash } from "node:crypto";
import { hostname } from "node:os";

import { Client, parsePayload, PayloadError, type ClientOptions } from "./client.js";
import { JobCounters } from "./counters.js";
import {
  AlreadyCommittedError,
  Failure,
  JobStoppedError,
  LeaseLostError,
  OncewardError,
  RetryableFailure,
  TerminalFailure,
  UnreachableError,
} from "./errors.js";
import { failureFromReportError, fallbackReport, sanitizeFailure } from "./failure_report.js";
import { HEARTBEATS_PER_LEASE, HeartbeatScheduler } from "./heartbeat.js";
import { Job } from "./job.js";
import { newIdempotencyKey, type LeaseLength, type Report } from "./requests.js";
import { Backoff, isFinal, isRetryable, retryAfterOf, sleep } from "./retry_policy.js";
import type { LeasedJob, ReportResult } from "./types.js";

/** The worker commits the return value. If the handler throws, the job fails. */
export type Handler<Payload = unknown, Result = unknown> = (job: Job<Payload>) => Promise<Result> | Result;

export interface WorkerConfig extends ClientOptions {
  /** Replaces the options of a client. */
  client?: Client;
  /** The worker's name, shown with its executions. */
  name?: string;
  /** Maximum number of concurrent jobs. Default: 1. */
  concurrency?: number;
  /** Length of the leases in milliseconds, instead of that of the lifecycle. */
  lease?: number;
  /** How long one lease call waits for a job, in milliseconds. */
  maxWait?: number;
  /** After SIGTERM, SIGINT, SIGHUP or `stop`, the worker yields jobs that still run after this time, in milliseconds. */
  shutdownGrace?: number;
  /** The code of errors that are no `Failure`; they are retryable. */
  errorCode?: string;
  /** Gets a line when the worker starts and ends, and for problems that need an operator. Default: `console.error`. */
  log?: (message: string) => void;
}

interface RegisteredHandler {
  handler: Handler<never>;
  decode: ((payload: unknown) => unknown) | undefined;
}

/** Time for the last reports after the grace period, and to recall the jobs of an aborted lease call, in milliseconds. */
const FINAL_REPORT_TIMEOUT = 2_000;

/** The server's limit for a request with an idempotency key. */
const MAX_JOBS_PER_REQUEST = 100;

/** A payload that does not match its hash may have been damaged in transfer, so it is downloaded once more. */
const MAX_PAYLOAD_DOWNLOADS = 2;

/** A report, its fallback, and the fallback of that one. */
const MAX_REPORT_ATTEMPTS = 3;

/** SIGHUP is included: a closed terminal must not leave jobs leased. */
const SHUTDOWN_SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"] as const;

export class Worker {
  readonly client: Client;
  readonly name: string;
  readonly #concurrency: number;
  readonly #leaseLength: LeaseLength;
  readonly #maxWait: number;
  readonly #errorCode: string;
  readonly #log: (message: string) => void;
  readonly #handlers = new Map<string, RegisteredHandler>();
  /** Running jobs, each with a promise of its end. */
  readonly #running = new Map<Job, Promise<void>>();
  readonly #heartbeats: HeartbeatScheduler;
  readonly #closing = new AbortController();
  readonly #graceOver = new AbortController();
  readonly #counters = new JobCounters();
  #shutdownGrace: number;
  #hasStarted = false;
  #isServerUnavailable = false;
  #notifyChange: (() => void) | undefined;

  constructor(config: WorkerConfig = {}) {
    const { concurrency = 1 } = config;
    if (!(concurrency >= 1)) throw new RangeError("concurrency must be at least 1");
    this.client = config.client ?? new Client(config);
    this.name = config.name ?? `${hostname()}-${process.pid}`;
    this.#concurrency = concurrency;
    this.#leaseLength = config.lease === undefined ? {} : { lease: config.lease };
    this.#maxWait = config.maxWait ?? 20_000;
    this.#shutdownGrace = config.shutdownGrace ?? 10_000;
    this.#errorCode = config.errorCode ?? "EXCEPTION";
    const log = config.log ?? ((message: string) => console.error(`onceward: ${message}`));
    this.#log = (message) => {
      try {
        log(message);
      } catch {
        // A log function that throws must not affect jobs or the shutdown.
      }
    };
    this.#heartbeats = new HeartbeatScheduler(this.client, this.#leaseLength, {
      onStopIgnored: (job) => void this.#yieldJob(job),
      onLeaseLost: (job, reason) => this.#log(`job ${job.id} lost its lease: ${reason}`),
    });
  }

  /**
   * Registers the handler of a lifecycle. `decode` converts the payload. If it throws, the job fails without retries (`BAD_PAYLOAD`).
   */
  handle<Payload = unknown, Result = unknown>(
    lifecycle: string,
    handler: Handler<Payload, Result>,
    decode?: (payload: unknown) => Payload,
  ): this {
    if (this.#handlers.has(lifecycle)) throw new Error(`lifecycle ${lifecycle} already has a handler`);
    this.#handlers.set(lifecycle, { handler: handler as Handler<never>, decode });
    return this;
  }

  /** Runs until SIGTERM, SIGINT, SIGHUP or `stop`. A second signal yields all running jobs at once. */
  async run(options: { signals?: boolean } = {}): Promise<void> {
    if (this.#handlers.size === 0) throw new Error("the worker has no handler; register one with `handle`");
    const signals = options.signals === false ? [] : SHUTDOWN_SIGNALS;
    const onSignal = (signal: NodeJS.Signals): void => {
      if (this.#closing.signal.aborted) this.#graceOver.abort();
      this.#startClose(signal, "; a second signal yields them at once");
    };
    for (const name of signals) process.on(name, onSignal);
    this.#hasStarted = true;
    try {
      const lifecycles = [...this.#handlers.keys()].join(", ");
      this.#log(`worker ${this.name} started: lifecycles ${lifecycles}, server ${this.client.url}, concurrency ${this.#concurrency}`);
      await this.#leaseUntilClosed();
    } finally {
      this.#startClose("error");
      await this.#drain();
      for (const name of signals) process.off(name, onSignal);
      this.#log(`worker stopped: ${this.#counters}`);
    }
  }

  /** Leases no more jobs and asks the running ones to stop. Returns at once; `run` resolves when the worker has ended. */
  stop(): void {
    this.#startClose("stop was called");
  }

  #startClose(cause: string, hint = ""): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    for (const job of this.#running.keys()) job.requestStop("shutdown");
    this.#notifyChange?.();
    if (!this.#hasStarted) return;
    this.#log(`worker is stopping (${cause}): running jobs have ${this.#shutdownGrace / 1_000} s to finish${hint}`);
  }

  // Leasing

  async #leaseUntilClosed(): Promise<void> {
    while (!this.#closing.signal.aborted) {
      const freeSlots = this.#concurrency - this.#running.size;
      if (freeSlots === 0) {
        await this.#waitForChange();
        continue;
      }
      await this.#leaseWithRetries(Math.min(freeSlots, MAX_JOBS_PER_REQUEST));
    }
  }

  /** Waits until a job has ended or the worker must stop. */
  #waitForChange(): Promise<void> {
    return new Promise((resolve) => (this.#notifyChange = resolve));
  }

  /**
   * Leases until the server answers. All attempts have the same idempotency key, so that a repeated call returns the jobs of a lost
   * response.
   */
  async #leaseWithRetries(maxJobs: number): Promise<void> {
    const [idempotencyKey, backoff, closing] = [newIdempotencyKey(), new Backoff(), this.#closing.signal];
    for (let isRepeated = false; !closing.aborted; isRepeated = true) {
      try {
        const leasedJobs = await this.#leaseOnce(maxJobs, idempotencyKey, { maxWait: this.#maxWait, signal: closing });
        this.#logAvailable();
        this.#startJobs(leasedJobs, isRepeated);
        return;
      } catch (error) {
        if (closing.aborted) break;
        if (isFinal(error)) throw error;
        this.#logUnavailable(error);
        await sleep(backoff.nextDelay(retryAfterOf(error)), closing);
      }
    }
    // One of these calls may have leased jobs.
    this.#startJobs(await this.#recallLeases(maxJobs, idempotencyKey), true);
  }

  /** Logs the first failed lease call of an outage only. */
  #logUnavailable(error: unknown): void {
    if (!this.#isServerUnavailable) {
      this.#log(`lease call failed; the worker retries until the server is available: ${formatError(error)}`);
    }
    this.#isServerUnavailable = true;
  }

  #logAvailable(): void {
    if (this.#isServerUnavailable) this.#log("the server is available again");
    this.#isServerUnavailable = false;
  }

  /** Returns the jobs that an aborted call leased, so that the worker can yield them. */
  async #recallLeases(maxJobs: number, idempotencyKey: string): Promise<LeasedJob[]> {
    const [backoff, deadline] = [new Backoff(), performance.now() + FINAL_REPORT_TIMEOUT];
    for (;;) {
      try {
        return await this.#leaseOnce(maxJobs, idempotencyKey, { responseTimeout: FINAL_REPORT_TIMEOUT, replayOnly: true });
      } catch (error) {
        // `idempotency_key_in_use` if the server has not yet noticed that the call was aborted.
        if (!isRetryable(error) || performance.now() > deadline) return []; // Their leases expire.
      }
      await sleep(backoff.nextDelay());
    }
  }

  #leaseOnce(
    maxJobs: number,
    idempotencyKey: string,
    options: { maxWait?: number; signal?: AbortSignal; responseTimeout?: number; replayOnly?: boolean },
  ): Promise<LeasedJob[]> {
    const lifecycles = [...this.#handlers.keys()];
    return this.client.leaseOnce(lifecycles, this.name, { maxJobs, idempotencyKey, start: true, ...this.#leaseLength, ...options });
  }

  /** `isRepeated`: an earlier call may have leased the jobs, so the age of their leases is unknown. */
  #startJobs(leasedJobs: readonly LeasedJob[], isRepeated: boolean): void {
    for (const leased of leasedJobs) {
      const job = new Job(leased, this.#leaseLength.lease, (job, result) => this.#commitJob(job, result));
      const end = this.#runJob(job, leased, isRepeated).catch((error: unknown) => this.#log(`job ${job.id}: ${formatError(error)}`));
      this.#running.set(job, end);
    }
  }

  async #drain(): Promise<void> {
    const timer = setTimeout(() => this.#graceOver.abort(), this.#shutdownGrace);
    const graceOver = new Promise<void>((resolve) => {
      if (this.#graceOver.signal.aborted) resolve();
      this.#graceOver.signal.addEventListener("abort", () => resolve());
    });
    let isGraceOver = false;
    while (this.#running.size > 0 && !isGraceOver) {
      await Promise.race([this.#waitForChange(), graceOver.then(() => (isGraceOver = true))]);
    }
    clearTimeout(timer);
    const allEnded = new AbortController();
    const ends = [...this.#running].map(([job, end]) => {
      job.reportDeadline = performance.now() + FINAL_REPORT_TIMEOUT;
      // Wait for a report in progress. A handler that ignores the stop is not waited for; its job is yielded.
      return job.isReportClaimed ? Promise.race([end, sleep(FINAL_REPORT_TIMEOUT, allEnded.signal)]) : this.#yieldJob(job);
    });
    await Promise.all(ends);
    allEnded.abort();
  }

  // Running jobs

  async #runJob(job: Job, leased: LeasedJob, isLeaseUncertain: boolean): Promise<void> {
    try {
      if (this.#closing.signal.aborted) {
        // Its handler has not started, so no work is lost.
        job.reportDeadline = performance.now() + FINAL_REPORT_TIMEOUT;
        await this.#yieldJob(job);
        return;
      }
      this.#heartbeats.add(job);
      if (await this.#confirmLease(job, isLeaseUncertain)) await this.#sendFinalReport(job, await this.#runHandler(job, leased));
    } finally {
      this.#heartbeats.remove(job);
      this.#running.delete(job);
      this.#notifyChange?.();
    }
  }

  /**
   * Returns whether the handler may start: the lease has not expired, and if its age is unknown, the server accepted a heartbeat.
   */
  async #confirmLease(job: Job, isLeaseUncertain: boolean): Promise<boolean> {
    const [{ execution, token }, sentAt] = [job, performance.now()];
    try {
      if (isLeaseUncertain && sentAt < job.leaseExpiresAt) {
        if ((await this.#send(job, { execution, token, kind: "heartbeat", ...this.#leaseLength })).stop) {
          await this.#sendFinalReport(job, { execution, token, kind: "yield" });
          return false;
        }
        job.extendLease(sentAt);
      }
    } catch (error) {
      this.#log(`job ${job.id} was not started: ${formatError(error)}`);
      return false;
    }
    if (performance.now() < job.leaseExpiresAt) return true;
    this.#log(`job ${job.id} was not started: its lease had already expired`);
    return false;
  }

  /** Runs the handler. Returns the final report, or undefined if the worker no longer holds the job. */
  async #runHandler(job: Job, leased: LeasedJob): Promise<Report | undefined> {
    const { execution, token } = job;
    const registered = this.#handlers.get(job.record.lifecycle);
    try {
      if (registered === undefined) {
        throw new RetryableFailure("NO_HANDLER", `the worker has no handler for ${job.record.lifecycle}`);
      }
      await this.#preparePayload(job, leased, registered.decode);
      const result: unknown = await registered.handler(job as Job<never>);
      return job.isCommitted ? { execution, token, kind: "finish" } : { execution, token, kind: "commit", result, finish: true };
    } catch (error) {
      if (error instanceof LeaseLostError || error instanceof AlreadyCommittedError) {
        this.#log(`job ${job.id} was dropped: ${formatError(error)}`);
        return undefined;
      }
      if (error instanceof JobStoppedError) return { execution, token, kind: "yield" };
      if (error instanceof Failure) return { execution, token, kind: "fail", failure: sanitizeFailure(error) };
      const details = error instanceof Error ? (error.stack ?? formatError(error)) : formatError(error);
      this.#log(`job ${job.id}: handler threw an error: ${details}`);
      const failure = new RetryableFailure(this.#errorCode, formatError(error));
      return { execution, token, kind: "fail", failure: sanitizeFailure(failure) };
    }
  }

  async #preparePayload(job: Job, leased: LeasedJob, decode: RegisteredHandler["decode"]): Promise<void> {
    if (leased.payload_error !== undefined) throw new TerminalFailure("BAD_PAYLOAD", leased.payload_error);
    if (leased.needs_payload_fetch) job.payload = await this.#fetchPayload(job);
    if (decode === undefined) return;
    try {
      job.payload = decode(job.payload);
    } catch (error) {
      throw new TerminalFailure("BAD_PAYLOAD", formatError(error));
    }
  }

  /** Downloads a large payload and verifies its hash. */
  async #fetchPayload(job: Job): Promise<unknown> {
    const expectedHash = job.record.payload?.sha256;
    for (let download = 0; download < MAX_PAYLOAD_DOWNLOADS; download += 1) {
      const payload = await this.client.payload(job.id).catch((error: unknown) => {
        // If the server is unavailable or busy, the job is yielded. If the payload is missing or its download breaks off, other workers
        // would fail, too, so the job fails and the lifecycle limits the retries.
        const isUnavailable = error instanceof UnreachableError ? error.notSent : isRetryable(error);
        if (isUnavailable) throw new JobStoppedError("no_payload", { cause: error });
        throw error instanceof OncewardError ? new RetryableFailure("PAYLOAD_UNAVAILABLE", formatError(error)) : error;
      });
      if (expectedHash === undefined || createHash("sha256").update(payload).digest("hex") === expectedHash) {
        return this.#parsePayload(payload);
      }
      this.#log(`job ${job.id}: the downloaded payload does not match its hash`);
    }
    throw new RetryableFailure("PAYLOAD_UNAVAILABLE", "the downloaded payload does not match its hash");
  }

  #parsePayload(payload: Uint8Array): unknown {
    try {
      return parsePayload(payload);
    } catch (error) {
      throw error instanceof PayloadError ? new TerminalFailure("BAD_PAYLOAD", error.message) : error;
    }
  }

  /** Yields a job whose handler does not end. The handler's result is discarded. */
  async #yieldJob(job: Job): Promise<void> {
    if (!job.claimReport()) return;
    job.requestStop("shutdown");
    const { execution, token } = job;
    const report: Report = { execution, token, kind: job.isCommitted ? "finish" : "yield" };
    try {
      await this.#send(job, report);
      this.#counters.count(report);
    } catch (error) {
      this.#log(`job ${job.id} could not be yielded: ${formatError(error)}`);
    }
    this.#heartbeats.remove(job);
  }

  async #sendFinalReport(job: Job, handlerReport: Report | undefined): Promise<void> {
    if (handlerReport === undefined || job.stopReason === "lease_lost" || !job.claimReport()) return;
    const { execution, token } = job;
    // Once the effect is committed, the job ends however the handler ended.
    let report: Report = job.isCommitted ? { execution, token, kind: "finish" } : handlerReport;
    for (let attempt = 0; attempt < MAX_REPORT_ATTEMPTS; attempt += 1) {
      try {
        await this.#send(job, report);
        this.#counters.count(report);
        return;
      } catch (error) {
        this.#log(`job ${job.id}: ${report.kind} was not accepted: ${formatError(error)}`);
        const fallback = fallbackReport(report, error, this.#errorCode);
        if (fallback === undefined) return;
        report = fallback;
      }
    }
  }

  /** Sends a report until the server accepts or refuses it, or the lease has expired. The fencing token makes repeats safe. */
  async #send(job: Job, report: Report): Promise<ReportResult> {
    const backoff = new Backoff(Math.max(job.leaseDuration / 10, 10));
    for (;;) {
      const timeout = Math.min(this.client.retryPolicy.responseTimeout, Math.max(job.reportDeadline - performance.now(), 50));
      let delay: number;
      try {
        return await this.client.reportOnce(report, timeout, job.traceparent);
      } catch (error) {
        delay = Math.min(backoff.nextDelay(retryAfterOf(error)), job.leaseDuration / HEARTBEATS_PER_LEASE);
        const now = performance.now();
        const isTooLate = now >= job.leaseExpiresAt || now + delay > job.reportDeadline;
        if (!isRetryable(error) || isTooLate) throw error;
      }
      await sleep(delay);
    }
  }

  async #commitJob(job: Job, result: unknown): Promise<void> {
    if (job.isCommitted) throw new Error("the job is already committed");
    if (job.stopReason === "lease_lost") throw new JobStoppedError("lease_lost");
    const report: Report = { execution: job.execution, token: job.token, kind: "commit", result };
    try {
      await this.#send(job, report);
      this.#counters.count(report);
    } catch (error) {
      throw failureFromReportError(error) ?? error;
    }
    job.isCommitted = true;
  }
}

function formatError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error instanceof UnreachableError ? error.message : `${error.name}: ${error.message}`;
}
