/** Runs functions for jobs: leases them, keeps the leases alive, reports what became of them, and stops cleanly. */

import { hostname } from "node:os";

import { Client, type ClientOptions } from "./client.js";
import { AlreadyCommitted, Cancelled, Fail, LeaseLost, OncewardError, Refused, Retry, Unreachable, WorkError } from "./errors.js";
import { keepAlive } from "./heart.js";
import { Unspeakable } from "./http.js";
import { Job } from "./job.js";
import { Backoff, isFinal, mayPass, pause } from "./patience.js";
import type { Lease } from "./records.js";
import { newKey, type Report } from "./requests.js";

/** What it returns is committed; what it throws fails the job. */
export type Handler<Payload = unknown, Result = unknown> = (job: Job<Payload>) => Promise<Result> | Result;

export interface WorkerOptions extends ClientOptions {
  /** Instead of `url` and `key`. */
  client?: Client;
  /** What the worker calls itself; shown with its executions. */
  name?: string;
  /** Jobs at the same time. */
  concurrency?: number;
  /** Overrides how long the lifecycle lends a job without a heartbeat, in milliseconds. */
  lease?: number;
  /** How long one call waits for a job, in milliseconds. */
  wait?: number;
  /** After SIGTERM, SIGINT or `stop`, what still runs after so many milliseconds is given back. */
  grace?: number;
  /** What an error of no kind of ours is reported as; it may be tried again. */
  errorCode?: string;
  /** Told of what an operator may want to know; `console.error` if not given. */
  log?: (message: string) => void;
}

interface Handling {
  handler: Handler<never>;
  decode: ((payload: unknown) => unknown) | undefined;
}

/** Characters of an error's text that are told to the server. */
const SHORT = 500;

/** How long the last calls may take when the worker stops, in milliseconds. */
const LAST = 2_000;

export class Worker {
  readonly client: Client;
  readonly name: string;
  readonly #concurrency: number;
  readonly #lease: { lease?: number };
  readonly #wait: number;
  readonly #errorCode: string;
  readonly #log: (message: string) => void;
  readonly #handlers = new Map<string, Handling>();
  /** Each with its end. */
  readonly #running = new Map<Job, Promise<void>>();
  readonly #closing = new AbortController();
  /** The grace is over. */
  readonly #over = new AbortController();
  #grace: number;
  #freed: (() => void) | undefined;

  constructor(options: WorkerOptions = {}) {
    const { concurrency = 1 } = options;
    if (!(concurrency >= 1)) throw new RangeError("a worker runs at least one job at a time");
    this.client = options.client ?? new Client(options);
    this.name = options.name ?? `${hostname()}-${process.pid}`;
    this.#concurrency = concurrency;
    this.#lease = options.lease === undefined ? {} : { lease: options.lease };
    this.#wait = options.wait ?? 20_000;
    this.#grace = options.grace ?? 10_000;
    this.#errorCode = options.errorCode ?? "EXCEPTION";
    this.#log = options.log ?? ((message) => console.error(`onceward: ${message}`));
  }

  /**
   * This function works on jobs of that lifecycle. `decode` turns the payload into what it wants; where that throws, the job fails
   * for good (`BAD_PAYLOAD`).
   */
  handle<Payload = unknown, Result = unknown>(
    lifecycle: string,
    handler: Handler<Payload, Result>,
    decode?: (payload: unknown) => Payload,
  ): this {
    if (this.#handlers.has(lifecycle)) throw new Error(`${lifecycle} has a handler already`);
    this.#handlers.set(lifecycle, { handler: handler as Handler<never>, decode });
    return this;
  }

  /** Works until SIGTERM, SIGINT or `stop`. A second signal gives everything back at once. */
  async run(options: { signals?: boolean } = {}): Promise<void> {
    if (this.#handlers.size === 0) throw new Error("a worker without a handler has nothing to do");
    const signals = options.signals === false ? [] : (["SIGTERM", "SIGINT"] as const);
    const heard = (): void => {
      if (this.#closing.signal.aborted) this.#over.abort();
      this.stop();
    };
    for (const name of signals) process.on(name, heard);
    try {
      await this.#takeJobs();
    } finally {
      this.stop();
      await this.#drain();
      for (const name of signals) process.off(name, heard);
    }
  }

  /** Takes no more jobs and tells those that run to stop. Returns at once; `run` resolves when all is done. */
  stop(): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    for (const job of this.#running.keys()) job.cancel("shutdown");
    this.#freed?.();
  }

  // Leasing

  async #takeJobs(): Promise<void> {
    while (!this.#closing.signal.aborted) {
      const most = this.#concurrency - this.#running.size;
      if (most === 0) {
        await this.#change();
        continue;
      }
      for (const lease of await this.#ask(most)) this.#begin(lease);
    }
  }

  /** Until a job has ended, or the worker is to stop. */
  #change(): Promise<void> {
    return new Promise((resolve) => (this.#freed = resolve));
  }

  /** Asks until there is an answer, with one key: jobs that were taken for an answer that got lost are found again. */
  async #ask(most: number): Promise<Lease[]> {
    const [once, backoff, closing] = [newKey(), new Backoff(), this.#closing.signal];
    for (;;) {
      try {
        return await this.#askOnce(most, once, { wait: this.#wait, signal: closing });
      } catch (error) {
        if (closing.aborted) return this.#askLast(most, once);
        if (isFinal(error) || !(error instanceof OncewardError)) throw error;
        this.#log(`no jobs to be had: ${text(error)}`);
        await pause(backoff.wait(), closing);
      }
      if (closing.aborted) return [];
    }
  }

  /** The call that was given up may have taken jobs: these are known by its key, and given back. */
  async #askLast(most: number, once: string): Promise<Lease[]> {
    const [backoff, until] = [new Backoff(), performance.now() + LAST];
    for (;;) {
      try {
        return await this.#askOnce(most, once, { timeout: LAST, again: true });
      } catch (error) {
        // The server may not have noticed yet that nobody listens any more.
        if (!mayPass(error) || performance.now() > until) return []; // Their leases run out.
      }
      await pause(backoff.wait());
    }
  }

  #askOnce(
    max: number,
    once: string,
    more: { wait?: number; signal?: AbortSignal; timeout?: number; again?: boolean },
  ): Promise<Lease[]> {
    return this.client.leaseOnce([...this.#handlers.keys()], this.name, { max, once, start: true, ...this.#lease, ...more });
  }

  #begin(lease: Lease): void {
    const taken = Date.parse(lease.expires_at) - Date.parse(lease.record.updated_at);
    const job = new Job(lease, this.#lease.lease ?? taken, (job, result) => this.#commitNow(job, result));
    const end = this.#live(job, lease).catch((error: unknown) => this.#log(`job ${job.id}: ${text(error)}`));
    this.#running.set(job, end);
  }

  async #drain(): Promise<void> {
    const timer = setTimeout(() => this.#over.abort(), this.#grace);
    const over = new Promise<void>((resolve) => {
      if (this.#over.signal.aborted) resolve();
      this.#over.signal.addEventListener("abort", () => resolve());
    });
    let late = false;
    while (this.#running.size > 0 && !late) {
      await Promise.race([this.#change(), over.then(() => (late = true))]);
    }
    clearTimeout(timer);
    const soon = new AbortController();
    const ends = [...this.#running].map(([job, end]) => {
      job.goneAt = Math.min(job.goneAt, performance.now() + LAST);
      // One that reports already needs a moment; one that does not listen is not waited for.
      return job.reported ? Promise.race([end, pause(LAST, soon.signal)]) : this.#giveBack(job);
    });
    await Promise.all(ends);
    soon.abort();
  }

  // Working

  async #live(job: Job, lease: Lease): Promise<void> {
    const stopBeating = keepAlive(this.client, job, this.#lease, {
      overdue: () => void this.#giveBack(job),
      lost: (why) => this.#log(`lost the lease of ${job.id}: ${why}`),
    });
    try {
      // Not begun, so nothing is lost by giving it back.
      if (this.#closing.signal.aborted) await this.#giveBack(job);
      else await this.#report(job, await this.#outcome(job, lease));
    } finally {
      stopBeating();
      this.#running.delete(job);
      this.#freed?.();
    }
  }

  /** Runs the handler; what is to be told of it. Undefined: the job is no longer ours. */
  async #outcome(job: Job, lease: Lease): Promise<Report | undefined> {
    const { execution, token } = job;
    const handling = this.#handlers.get(job.record.lifecycle);
    try {
      if (handling === undefined) throw new Retry("NO_HANDLER", `nobody here works on ${job.record.lifecycle}`);
      await this.#fetch(job, lease, handling.decode);
      const result: unknown = await handling.handler(job as Job<never>);
      return job.committed ? { execution, token, do: "finish" } : { execution, token, do: "commit", result, finish: true };
    } catch (error) {
      if (error instanceof LeaseLost || error instanceof AlreadyCommitted) {
        this.#log(`job ${job.id}: ${text(error)}`);
        return undefined;
      }
      if (error instanceof Cancelled) return { execution, token, do: "yield" };
      if (error instanceof WorkError) return { execution, token, do: "fail", error: short(error) };
      this.#log(`job ${job.id}: its handler threw: ${error instanceof Error ? (error.stack ?? text(error)) : text(error)}`);
      return { execution, token, do: "fail", error: short(new Retry(this.#errorCode, text(error))) };
    }
  }

  async #fetch(job: Job, lease: Lease, decode: Handling["decode"]): Promise<void> {
    if (lease.payload_elsewhere) job.payload = await this.client.payloadValue(job.id);
    if (decode === undefined) return;
    try {
      job.payload = decode(job.payload);
    } catch (error) {
      throw new Fail("BAD_PAYLOAD", text(error));
    }
  }

  /** Yields a job whose handler does not come to an end; what it still does comes to nothing. */
  async #giveBack(job: Job): Promise<void> {
    if (!job.claimReport()) return;
    job.cancel("shutdown");
    const { execution, token } = job;
    try {
      await this.#send(job, { execution, token, do: job.committed ? "finish" : "yield" });
    } catch (error) {
      this.#log(`job ${job.id} could not be given back: ${text(error)}`);
    }
  }

  async #report(job: Job, wanted: Report | undefined): Promise<void> {
    if (wanted === undefined || job.reason === "lease_lost" || !job.claimReport()) return;
    const { execution, token } = job;
    // The effect has landed, so what is left is tidying up, and no attempt follows.
    const report: Report = job.committed ? { execution, token, do: "finish" } : wanted;
    try {
      await this.#send(job, report);
    } catch (error) {
      const instead = report.do === "commit" ? failure(error) : undefined;
      this.#log(`job ${job.id}: ${report.do} was not taken: ${text(error)}`);
      if (instead !== undefined) await this.#send(job, { execution, token, do: "fail", error: short(instead) });
    }
  }

  /** Until it is answered, or the lease is surely gone. The same report twice does no harm: its token sees to that. */
  async #send(job: Job, report: Report): Promise<void> {
    const backoff = new Backoff(Math.max(job.lasts / 10, 10));
    for (;;) {
      try {
        await this.client.reportOnce(report, this.client.timeout, job.traceparent);
        return;
      } catch (error) {
        if (!mayPass(error) || performance.now() >= job.goneAt) throw error;
      }
      await pause(backoff.wait());
    }
  }

  async #commitNow(job: Job, result: unknown): Promise<void> {
    if (job.committed) throw new Error("this job is committed already");
    if (job.reason === "lease_lost") throw new Cancelled("lease_lost");
    await this.#send(job, { execution: job.execution, token: job.token, do: "commit", result });
    job.committed = true;
  }
}

/** What to report where a commit will never be taken: the job fails, which would else run until its lease ends, and again. */
function failure(error: unknown): WorkError | undefined {
  if (error instanceof Unspeakable) return new Fail("bad_result", error.message);
  if (!(error instanceof Refused)) return undefined;
  if (error.status === 413) return new Fail("SIZE_EXCEEDED", error.message);
  if (error.status >= 500) return new Retry(error.code, error.message);
  return error.status === 400 || error.status === 422 ? new Fail("bad_result", error.message) : undefined;
}

function short(error: WorkError): WorkError {
  const [code, message] = [error.code.slice(0, SHORT), error.message.slice(0, SHORT).replaceAll("\0", "")];
  if (!error.retryable) return new Fail(code, message);
  return new Retry(code, message, error.after === undefined ? {} : { after: error.after });
}

function text(error: unknown): string {
  return error instanceof Error ? (error instanceof Unreachable ? error.message : `${error.name}: ${error.message}`) : String(error);
}
