/** Keeps the leases of all jobs that run, and hears from the server that one is to stop. */

import { BATCH, type Client } from "./client.js";
import { Refused } from "./errors.js";
import type { Job } from "./job.js";
import { Backoff, problemIsFinal } from "./patience.js";
import { isProblem, type Problem, type Reported } from "./records.js";
import type { Lasting } from "./requests.js";

/** A lease is kept by so many heartbeats: two may be lost. */
export const BEATS = 3;

/** No heart beats faster than this, in milliseconds. */
const FASTEST = 5;

/** Whoever is due within this part of a beat goes along with the others, in one call. */
const ALONG = 0.1;

/** No beat is given less time for its answer, in milliseconds. */
const SHORTEST_WAIT = 250;

/** Node's timers take no more, and would fire at once. */
const LONGEST_TIMER = 2 ** 31 - 1;

export interface Heard {
  /** It was told to stop, and still runs a beat later. */
  overdue: (job: Job) => void;
  /** The job is no longer ours. */
  lost: (job: Job, why: string) => void;
}

/** When a job's heart beats next. */
interface Pulse {
  readonly job: Job;
  readonly every: number;
  due: number;
  toldToStop: boolean;
  /** The last beat was not taken: the next one waits as long as it should. */
  failed: boolean;
}

/** One for all jobs of a worker. */
export class Heart {
  readonly #client: Client;
  readonly #lasting: Lasting;
  readonly #heard: Heard;
  readonly #pulses = new Map<Job, Pulse>();
  /** One for all: who failed together is asked for together again, in one call. */
  #backoff = new Backoff();
  #timer: NodeJS.Timeout | undefined;
  #beating = false;

  constructor(client: Client, lasting: Lasting, heard: Heard) {
    this.#client = client;
    this.#lasting = lasting;
    this.#heard = heard;
  }

  add(job: Job): void {
    const every = Math.max(job.lasts / BEATS, FASTEST);
    // Counted from when the lease began, which is not now where its answer was long on its way.
    const due = job.goneAt - job.lasts + every;
    this.#pulses.set(job, { job, every, due, toldToStop: false, failed: false });
    this.#wind();
  }

  remove(job: Job): void {
    this.#pulses.delete(job);
    if (this.#pulses.size === 0) clearTimeout(this.#timer);
  }

  /** Sets the clock to the next beat. */
  #wind(): void {
    clearTimeout(this.#timer);
    if (this.#beating || this.#pulses.size === 0) return;
    const first = Math.min(...[...this.#pulses.values()].map((pulse) => pulse.due));
    this.#timer = setTimeout(() => void this.#ring(), Math.min(Math.max(first - performance.now(), 0), LONGEST_TIMER));
  }

  async #ring(): Promise<void> {
    const [now, all] = [performance.now(), [...this.#pulses.values()]];
    const due = all.filter((pulse) => pulse.due <= now);
    const along = all.filter((pulse) => pulse.due > now && pulse.due <= now + pulse.every * ALONG && !pulse.failed);
    this.#beating = true;
    try {
      if (due.length > 0) await this.#beat([...due, ...along].slice(0, BATCH));
    } finally {
      this.#beating = false;
      this.#wind();
    }
  }

  async #beat(due: readonly Pulse[]): Promise<void> {
    const sent = performance.now();
    // One that hangs must not cost the others their leases.
    const bounds = [...[...this.#pulses.values()].map((pulse) => pulse.every), ...due.map((pulse) => pulse.job.goneAt - sent)];
    const timeout = Math.max(Math.min(this.#client.timeout, ...bounds), SHORTEST_WAIT);
    const [answers, asked] = await this.#ask(due, timeout);
    const failed = due.filter((pulse, number) => this.#pulses.has(pulse.job) && !this.#isHeard(pulse, answers[number], sent));
    if (failed.length === 0) {
      this.#backoff = new Backoff();
      return;
    }
    const [now, waits] = [performance.now(), answers.map((answer) => (answer && isProblem(answer) ? (answer.retry_after_ms ?? 0) : 0))];
    const wait = this.#backoff.wait(Math.max(asked, ...waits));
    for (const pulse of failed) {
      pulse.failed = true;
      // Not later than a beat, however long the server asks to wait: two of those, and the lease has run out.
      pulse.due = Math.min(now + Math.min(wait, pulse.every), Math.max(pulse.job.goneAt, now));
    }
  }

  /** What was said of each, and how long the server asks to wait where it said nothing of any. */
  async #ask(due: readonly Pulse[], timeout: number): Promise<[readonly (Reported | Problem | undefined)[], number]> {
    const reports = due.map(({ job: { execution, token } }) => ({ execution, token, do: "heartbeat" as const, ...this.#lasting }));
    const [first] = reports;
    try {
      if (reports.length === 1 && first !== undefined) return [[await this.#client.reportOnce(first, timeout)], 0];
      return [await this.#client.reportManyOnce(reports, timeout), 0];
    } catch (error) {
      // Whatever it is: a heart that stops loses every lease.
      if (!(error instanceof Refused)) return [[], 0];
      return [reports.length === 1 ? [error.problem] : [], error.problem.retry_after_ms ?? 0];
    }
  }

  /** False where the beat is to be sent again soon. */
  #isHeard(pulse: Pulse, answer: Reported | Problem | undefined, sent: number): boolean {
    const { job } = pulse;
    if (answer !== undefined && !isProblem(answer)) {
      job.kept(sent);
      pulse.failed = false;
      pulse.due = sent + pulse.every;
      if (answer.stop && pulse.toldToStop) this.#heard.overdue(job);
      else if (answer.stop) job.cancel("stop");
      pulse.toldToStop ||= answer.stop === true;
      return true;
    }
    // A server in trouble says nothing of the lease.
    const isLost = answer !== undefined && problemIsFinal(answer);
    if (!isLost && performance.now() < job.goneAt) return false;
    this.remove(job);
    // Or the report came first.
    if (!isLost || !job.reported) {
      this.#heard.lost(job, answer === undefined ? "no answer from the server" : new Refused(answer).message);
      job.cancel("lease_lost");
    }
    return true;
  }
}
