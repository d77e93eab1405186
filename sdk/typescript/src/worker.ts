/** Runs functions for jobs: leases them, keeps the leases alive, reports what became of them, and stops cleanly. */

import { createHash } from "node:crypto";
import { hostname } from "node:os";

import { Client, valueOf, type ClientOptions } from "./client.js";
import { AlreadyCommitted, Cancelled, Fail, LeaseLost, OncewardError, Retry, Unreachable, WorkError } from "./errors.js";
import { BEATS, Heart } from "./heart.js";
import { Job } from "./job.js";
import { askedOf, Backoff, isFinal, mayPass, pause } from "./patience.js";
import type { Lease, Reported } from "./records.js";
import { newKey, type Report } from "./requests.js";
import { jobs, Tally } from "./tally.js";
import { failureOf, instead, isBroken, short } from "./telling.js";

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
  /** After SIGTERM, SIGINT, SIGHUP or `stop`, what still runs after so many milliseconds is given back. */
  grace?: number;
  /** What an error of no kind of ours is reported as; it may be tried again. */
  errorCode?: string;
  /** Told of how the worker begins and ends, and of what else an operator may want to know; `console.error` if not given. */
  log?: (message: string) => void;
}

interface Handling {
  handler: Handler<never>;
  decode: ((payload: unknown) => unknown) | undefined;
}

/** How long the last calls may take when the worker stops, in milliseconds. */
const LAST = 2_000;

/** Jobs asked for in one call: their payloads come along. */
const AT_ONCE = 100;

/** A report that the server breaks at so often is not tried again: the server is in trouble for a moment, or it is the report. */
const BROKEN = 5;

/** A payload that is not that of its hash may have been harmed on the way here, and is fetched once more. */
const FETCHES = 2;

/** What ends a worker. A terminal that is closed is no reason to leave jobs behind. */
const SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"] as const;

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
  readonly #heart: Heart;
  readonly #closing = new AbortController();
  /** The grace is over. */
  readonly #over = new AbortController();
  readonly #tally = new Tally();
  #grace: number;
  #runs = false;
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
    const log = options.log ?? ((message: string) => console.error(`onceward: ${message}`));
    this.#log = (message) => {
      try {
        log(message);
      } catch {
        // A log that breaks keeps no job from its end, and no worker from its own.
      }
    };
    this.#heart = new Heart(this.client, this.#lease, {
      overdue: (job) => void this.#giveBack(job),
      lost: (job, why) => this.#log(`lost the lease of ${job.id}: ${why}`),
    });
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

  /** Works until SIGTERM, SIGINT, SIGHUP or `stop`. A second signal gives everything back at once. */
  async run(options: { signals?: boolean } = {}): Promise<void> {
    if (this.#handlers.size === 0) throw new Error("a worker without a handler has nothing to do");
    const signals = options.signals === false ? [] : SIGNALS;
    const heard = (signal: NodeJS.Signals): void => {
      if (this.#closing.signal.aborted) this.#over.abort();
      this.#end(`on ${signal}`, "; a second signal gives it back at once");
    };
    for (const name of signals) process.on(name, heard);
    this.#runs = true;
    try {
      const served = `${[...this.#handlers.keys()].join(", ")} at ${this.client.url}`;
      this.#log(`${this.name} works on ${served}, ${jobs(this.#concurrency)} at a time`);
      await this.#takeJobs();
    } finally {
      this.#end("after an error");
      await this.#drain();
      for (const name of signals) process.off(name, heard);
      this.#log(`ended: ${this.#tally}`);
    }
  }

  /** Takes no more jobs and tells those that run to stop. Returns at once; `run` resolves when all is done. */
  stop(): void {
    this.#end("as asked");
  }

  #end(why: string, more = ""): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    for (const job of this.#running.keys()) job.cancel("shutdown");
    this.#freed?.();
    if (this.#runs) this.#log(`ending, ${why}: what runs may finish within ${this.#grace / 1_000} s${more}`);
  }

  // Leasing

  async #takeJobs(): Promise<void> {
    while (!this.#closing.signal.aborted) {
      const most = this.#concurrency - this.#running.size;
      if (most === 0) {
        await this.#change();
        continue;
      }
      await this.#ask(Math.min(most, AT_ONCE));
    }
  }

  /** Until a job has ended, or the worker is to stop. */
  #change(): Promise<void> {
    return new Promise((resolve) => (this.#freed = resolve));
  }

  /** Asks until there is an answer, with one key: jobs that were taken for an answer that got lost are found again. */
  async #ask(most: number): Promise<void> {
    const [once, backoff, closing] = [newKey(), new Backoff(), this.#closing.signal];
    for (let isAgain = false; !closing.aborted; isAgain = true) {
      try {
        this.#begin(await this.#askOnce(most, once, { wait: this.#wait, signal: closing }), isAgain);
        return;
      } catch (error) {
        if (closing.aborted) break;
        if (isFinal(error)) throw error;
        this.#log(`no jobs to be had: ${text(error)}`);
        await pause(backoff.wait(askedOf(error)), closing);
      }
    }
    // The last of these calls may have taken jobs.
    this.#begin(await this.#askLast(most, once), true);
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

  /** `isAgain`: not the first call that may have taken them, so nobody knows how old these leases are. */
  #begin(leases: readonly Lease[], isAgain: boolean): void {
    for (const lease of leases) {
      const job = new Job(lease, this.#lease.lease, (job, result) => this.#commitNow(job, result));
      const end = this.#live(job, lease, isAgain).catch((error: unknown) => this.#log(`job ${job.id}: ${text(error)}`));
      this.#running.set(job, end);
    }
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
      job.giveUpAt = performance.now() + LAST;
      // One that reports already needs a moment; one that does not listen is not waited for.
      return job.reported ? Promise.race([end, pause(LAST, soon.signal)]) : this.#giveBack(job);
    });
    await Promise.all(ends);
    soon.abort();
  }

  // Working

  async #live(job: Job, lease: Lease, inDoubt: boolean): Promise<void> {
    try {
      if (this.#closing.signal.aborted) {
        // Not begun, so nothing is lost by giving it back.
        job.giveUpAt = performance.now() + LAST;
        await this.#giveBack(job);
        return;
      }
      this.#heart.add(job);
      if (await this.#isOurs(job, inDoubt)) await this.#report(job, await this.#outcome(job, lease));
    } finally {
      this.#heart.remove(job);
      this.#running.delete(job);
      this.#freed?.();
    }
  }

  /**
   * Whether its handler may begin: not on a lease that is over, and not on one that may be, before the server has said that it is not.
   */
  async #isOurs(job: Job, inDoubt: boolean): Promise<boolean> {
    const [{ execution, token }, sent] = [job, performance.now()];
    try {
      if (inDoubt && sent < job.goneAt) {
        if ((await this.#send(job, { execution, token, do: "heartbeat", ...this.#lease })).stop) {
          await this.#report(job, { execution, token, do: "yield" });
          return false;
        }
        job.kept(sent);
      }
    } catch (error) {
      this.#log(`job ${job.id} is not begun: ${text(error)}`);
      return false;
    }
    if (performance.now() < job.goneAt) return true;
    this.#log(`job ${job.id} is not begun: its lease was over when it came`);
    return false;
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
    if (lease.payload_elsewhere) job.payload = await this.#payload(job);
    if (decode === undefined) return;
    try {
      job.payload = decode(job.payload);
    } catch (error) {
      throw new Fail("BAD_PAYLOAD", text(error));
    }
  }

  /** The bytes of its hash, and no others. */
  async #payload(job: Job): Promise<unknown> {
    const expected = job.record.payload?.sha256;
    for (let tries = 0; tries < FETCHES; tries += 1) {
      const found = await this.client.payload(job.id).catch((error: unknown) => {
        // A server that is away or busy is no fault of the job's. What is not there, or breaks off, would be so for whoever has it
        // next, too.
        if (error instanceof Unreachable ? error.unheard : mayPass(error)) throw new Cancelled("no_payload", { cause: error });
        throw error instanceof OncewardError ? new Retry("PAYLOAD_UNAVAILABLE", text(error)) : error;
      });
      if (expected === undefined || createHash("sha256").update(found).digest("hex") === expected) return valueOf(found);
      this.#log(`job ${job.id}: the payload that came is not that of its hash`);
    }
    throw new Retry("PAYLOAD_UNAVAILABLE", "the payload that came is not that of its hash");
  }

  /** Yields a job whose handler does not come to an end; what it still does comes to nothing. */
  async #giveBack(job: Job): Promise<void> {
    if (!job.claimReport()) return;
    job.cancel("shutdown");
    const { execution, token } = job;
    const end: Report = { execution, token, do: job.committed ? "finish" : "yield" };
    try {
      await this.#send(job, end);
      this.#tally.took(end);
    } catch (error) {
      this.#log(`job ${job.id} could not be given back: ${text(error)}`);
    }
    this.#heart.remove(job);
  }

  async #report(job: Job, wanted: Report | undefined): Promise<void> {
    if (wanted === undefined || job.reason === "lease_lost" || !job.claimReport()) return;
    const { execution, token } = job;
    // The effect has landed, so what is left is tidying up, and no attempt follows.
    let report: Report = job.committed ? { execution, token, do: "finish" } : wanted;
    // What is sent instead may not be taken either, and is then told as plainly as can be.
    for (let tries = 0; tries < 3; tries += 1) {
      try {
        await this.#send(job, report);
        this.#tally.took(report);
        return;
      } catch (error) {
        this.#log(`job ${job.id}: ${report.do} was not taken: ${text(error)}`);
        const other = instead(report, error, this.#errorCode);
        if (other === undefined) return;
        report = other;
      }
    }
  }

  /** Until it is answered, or the lease is surely gone. The same report twice does no harm: its token sees to that. */
  async #send(job: Job, report: Report): Promise<Reported> {
    const backoff = new Backoff(Math.max(job.lasts / 10, 10));
    for (let broken = 0; ; ) {
      const timeout = Math.min(this.client.timeout, Math.max(job.giveUpAt - performance.now(), 50));
      let wait: number;
      try {
        return await this.client.reportOnce(report, timeout, job.traceparent);
      } catch (error) {
        if (isBroken(error)) broken += 1;
        wait = Math.min(backoff.wait(askedOf(error)), job.lasts / BEATS);
        const now = performance.now();
        if (!mayPass(error) || broken === BROKEN || now >= job.goneAt || now + wait > job.giveUpAt) throw error;
      }
      await pause(wait);
    }
  }

  async #commitNow(job: Job, result: unknown): Promise<void> {
    if (job.committed) throw new Error("this job is committed already");
    if (job.reason === "lease_lost") throw new Cancelled("lease_lost");
    const report: Report = { execution: job.execution, token: job.token, do: "commit", result };
    try {
      await this.#send(job, report);
      this.#tally.took(report);
    } catch (error) {
      throw failureOf(error) ?? error;
    }
    job.committed = true;
  }
}

function text(error: unknown): string {
  return error instanceof Error ? (error instanceof Unreachable ? error.message : `${error.name}: ${error.message}`) : String(error);
}
