/** Calls to a server, typed. Each may be made again without harm, and is, as long as patience lasts. */

import { refused, type WorkError } from "./errors.js";
import { Transport, type Ask } from "./http.js";
import { Patience, problemMayPass } from "./patience.js";
import type { Effect, Entry, Execution, Fired, Lease, Page, Problem, Record, Reported } from "./records.js";
import { eventBody, newBody, newKey, reportBody, whole, type Event, type Lasting, type New, type Report } from "./requests.js";
import { Stream, type StreamOptions } from "./stream.js";

export interface ClientOptions {
  /** Else `ONCEWARD_URL`, else http://127.0.0.1:7171. */
  url?: string;
  /** Else `ONCEWARD_KEY`. */
  key?: string;
  /** Bounds one try, in milliseconds. */
  timeout?: number;
  /** How long a call is tried again when the server cannot be reached, is overloaded or starts anew, in milliseconds. */
  patience?: number;
}

export interface LeaseOptions extends Lasting {
  max?: number;
  /** How long to wait for a first job, in milliseconds. */
  wait?: number;
  start?: boolean;
  /** The same key answers with the same jobs. Without one, a key is made up for this call and its retries. */
  once?: string;
}

/** Records, events or reports in one call; longer lists are sent in several. */
export const BATCH = 500;

/** Characters in one call; the server takes 16 MB, and a character has up to four bytes. */
const BATCH_SIZE = 3 << 20;

export class Client {
  readonly url: string;
  readonly timeout: number;
  readonly patience: number;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.url = options.url ?? process.env["ONCEWARD_URL"] ?? "http://127.0.0.1:7171";
    this.timeout = options.timeout ?? 10_000;
    this.patience = options.patience ?? 30_000;
    this.#transport = new Transport(this.url, options.key ?? process.env["ONCEWARD_KEY"]);
  }

  // Producers

  /**
   * Makes a record. `once` is the idempotency key: the same key answers with the same record, also tomorrow and from another
   * process. Without one, a key is made up for this call, so that its own retries make no second record.
   */
  async create(lifecycle: string, record: New = {}): Promise<Record> {
    const headers = { "idempotency-key": record.once ?? newKey() };
    const path = `/v1/lifecycles/${encodeURIComponent(lifecycle)}/records`;
    return (await this.#post(path, newBody(record), headers)) as Record;
  }

  /** Makes many records, each on its own: what became of each stands at its place in the answer. */
  async createMany(lifecycle: string, records: readonly New[]): Promise<(Record | Problem)[]> {
    const bodies = records.map((record) => ({ ...newBody(record), key: record.once ?? newKey() }));
    const path = `/v1/lifecycles/${encodeURIComponent(lifecycle)}/records/batch`;
    const results = await this.#batch(path, "records", bodies);
    return results.map((result) => ("error" in result ? (result.error as Problem) : (result["record"] as Record)));
  }

  /** Fires an event at a record; `version`: only if it is still at that version. */
  async fire(record: string, event: string, options: Omit<Event, "record" | "event"> & { token?: number } = {}): Promise<Fired> {
    const headers: { [name: string]: string } = { "idempotency-key": options.once ?? newKey() };
    if (options.version !== undefined) headers["if-match"] = `"${options.version}"`;
    const path = `/v1/records/${encodeURIComponent(record)}/events/${encodeURIComponent(event)}`;
    return (await this.#post(path, { input: options.input, token: options.token }, headers)) as Fired;
  }

  /** Fires many events, each on its own. */
  async fireMany(events: readonly Event[]): Promise<(Fired | Problem)[]> {
    const bodies = events.map((event) => eventBody(event, event.once ?? newKey()));
    const results = await this.#batch("/v1/events/batch", "events", bodies);
    return results.map((result) => ("error" in result ? (result.error as Problem) : (result as unknown as Fired)));
  }

  // Lookers

  async get(record: string): Promise<Record> {
    return (await this.#get(`/v1/records/${encodeURIComponent(record)}`)) as Record;
  }

  /** One page of records; `records` goes through all. */
  async list(
    lifecycle: string,
    options: { state?: string; owner?: string; limit?: number; cursor?: string } = {},
  ): Promise<Page> {
    return (await this.#get(`/v1/records?${query({ lifecycle, ...options })}`)) as Page;
  }

  async *records(lifecycle: string, options: { state?: string; owner?: string } = {}): AsyncGenerator<Record> {
    let cursor: string | undefined;
    do {
      const page: Page = await this.list(lifecycle, cursor === undefined ? options : { ...options, cursor });
      yield* page.records;
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
  }

  /** The whole log of a record, oldest entry first. */
  async history(record: string): Promise<Entry[]> {
    return (await this.#pages(`/v1/records/${encodeURIComponent(record)}/history`, "entries")) as Entry[];
  }

  /** The attempts at a job, oldest first. */
  async executions(record: string): Promise<Execution[]> {
    return (await this.#pages(`/v1/records/${encodeURIComponent(record)}/executions`, "executions")) as Execution[];
  }

  /** What the job's commit left; 404 where there is none. */
  async effect(record: string): Promise<Effect> {
    const found = (await this.#get(`/v1/records/${encodeURIComponent(record)}/effect`)) as Effect & { result_base64?: string };
    return found.result_base64 === undefined ? found : { ...found, result: unbase64(found.result_base64) };
  }

  /** The bytes of its payload. */
  async payload(record: string): Promise<Uint8Array> {
    const path = `/v1/records/${encodeURIComponent(record)}/payload`;
    return this.#patiently(() => this.#transport.bytes({ method: "GET", path, timeout: this.timeout }));
  }

  /** Its payload as a lease brings it: the value where it is JSON, else the bytes. */
  async payloadValue(record: string): Promise<unknown> {
    return valueOf(await this.payload(record));
  }

  /** The log as it grows, from the entry after `after` on (from now on, without it). It goes on by itself after a break. */
  stream(options: StreamOptions = {}): Stream {
    return new Stream(this.#transport, options);
  }

  // Workers

  /** Takes up to `max` jobs and waits up to `wait` milliseconds for the first. */
  async lease(lifecycles: readonly string[], worker: string, options: LeaseOptions = {}): Promise<Lease[]> {
    const once = options.once ?? newKey();
    return this.#patiently(() => this.leaseOnce(lifecycles, worker, { ...options, once }));
  }

  /** A single try of `lease`; after a failure the same `once` finds what may have been taken, with `again` only that. */
  async leaseOnce(
    lifecycles: readonly string[],
    worker: string,
    options: LeaseOptions & { once: string; again?: boolean; signal?: AbortSignal; timeout?: number },
  ): Promise<Lease[]> {
    const { max = 1, wait = 0, start = true, lease, once, again, signal } = options;
    const wait_ms = wait > 0 ? whole(wait) : undefined;
    const body = { lifecycles, worker, max, start, lease_ms: whole(lease), wait_ms, again };
    const timeout = (options.timeout ?? this.timeout) + wait;
    const headers = { "idempotency-key": once };
    const found = await this.#transport.json({ method: "POST", path: "/v1/leases", body, headers, timeout, signal });
    return (found as { executions: Given[] }).executions.map((each) => {
      if (typeof each.payload_base64 === "string") {
        return { ...each, payload: unbase64(each.payload_base64), payload_elsewhere: false };
      }
      // A JSON `null` has come along; anything larger has stayed behind.
      const elsewhere = (each.payload ?? null) === null && (each.record.payload?.bytes ?? 0) > "null".length;
      return { ...each, payload_elsewhere: elsewhere };
    });
  }

  start(execution: string, token: number): Promise<Reported> {
    return this.report({ execution, token, do: "start" });
  }

  /** Keeps the lease; the answer's `stop` says that the job is to be given up. */
  heartbeat(execution: string, token: number, options: Lasting = {}): Promise<Reported> {
    return this.report({ execution, token, do: "heartbeat", ...options });
  }

  /** Lets the effect land, at most once in the life of a job. `result` is a JSON value or bytes. */
  commit(execution: string, token: number, result?: unknown, options: { finish?: boolean } = {}): Promise<Reported> {
    return this.report({ execution, token, do: "commit", result, ...options });
  }

  finish(execution: string, token: number): Promise<Reported> {
    return this.report({ execution, token, do: "finish" });
  }

  fail(execution: string, token: number, error: WorkError): Promise<Reported> {
    return this.report({ execution, token, do: "fail", error });
  }

  /** Gives a job back unharmed. */
  yield(execution: string, token: number): Promise<Reported> {
    return this.report({ execution, token, do: "yield" });
  }

  report(report: Report): Promise<Reported> {
    return this.#patiently(() => this.reportOnce(report));
  }

  /** A single try of a report; `trace` is the W3C trace context (`traceparent`) that it belongs to. */
  async reportOnce(report: Report, timeout = this.timeout, trace?: string | null): Promise<Reported> {
    const path = `/v1/executions/${encodeURIComponent(report.execution)}/${report.do}`;
    const headers: { [name: string]: string } = trace ? { traceparent: trace } : {};
    return (await this.#transport.json({ method: "POST", path, body: reportBody(report), headers, timeout })) as Reported;
  }

  /** Many reports, each on its own. */
  async reportMany(reports: readonly Report[]): Promise<(Reported | Problem)[]> {
    const bodies = reports.map((each) => ({ execution: each.execution, do: each.do, ...reportBody(each) }));
    return (await this.#batch("/v1/executions/batch", "reports", bodies)).map(reported);
  }

  /** A single try of one batch. */
  async reportManyOnce(reports: readonly Report[], timeout = this.timeout): Promise<(Reported | Problem)[]> {
    const body = { reports: reports.map((each) => ({ execution: each.execution, do: each.do, ...reportBody(each) })) };
    const found = await this.#transport.json({ method: "POST", path: "/v1/executions/batch", body, timeout });
    return (found as { results: Result[] }).results.map(reported);
  }

  // Inside

  async #patiently<T>(work: () => Promise<T>): Promise<T> {
    const patience = new Patience(this.patience);
    for (;;) {
      try {
        return await work();
      } catch (error) {
        await patience.after(error);
      }
    }
  }

  #get(path: string): Promise<unknown> {
    return this.#patiently(() => this.#transport.json({ method: "GET", path, timeout: this.timeout }));
  }

  #post(path: string, body: object | string, headers: { [name: string]: string } = {}): Promise<unknown> {
    const ask: Ask = { method: "POST", path, body, headers, timeout: this.timeout };
    return this.#patiently(() => this.#transport.json(ask));
  }

  async #pages(path: string, name: string): Promise<unknown[]> {
    const all: unknown[] = [];
    let cursor: string | undefined;
    do {
      const asked = cursor === undefined ? path : `${path}?${query({ cursor })}`;
      const found = (await this.#get(asked)) as { [name: string]: unknown };
      all.push(...(found[name] as unknown[]));
      cursor = (found["next"] as string | null | undefined) ?? undefined;
    } while (cursor !== undefined);
    return all;
  }

  async #batch(path: string, name: string, bodies: readonly object[]): Promise<Result[]> {
    const all: Result[] = [];
    let [part, size]: [string[], number] = [[], 0];
    for (const text of bodies.map((body) => JSON.stringify(body))) {
      if (part.length > 0 && (part.length === BATCH || size + text.length > BATCH_SIZE)) {
        all.push(...(await this.#part(path, name, part)));
        [part, size] = [[], 0];
      }
      part.push(text);
      size += text.length;
    }
    return part.length === 0 ? all : [...all, ...(await this.#part(path, name, part))];
  }

  /** One batch; those of its calls that may be taken after a moment are made again. */
  async #part(path: string, name: string, bodies: readonly string[]): Promise<Result[]> {
    const results = new Array<Result>(bodies.length);
    const patience = new Patience(this.patience);
    let waiting = bodies.map((_, at) => at);
    for (;;) {
      const text = `{"${name}":[${waiting.map((at) => bodies[at]).join(",")}]}`;
      const found = (await this.#post(path, text)) as { results: Result[] };
      waiting.forEach((at, number) => (results[at] = found.results[number] as Result));
      waiting = waiting.filter((at) => results[at]?.error && problemMayPass(results[at].error));
      const first = waiting[0];
      if (first === undefined) return results;
      try {
        await patience.after(refused(results[first]?.error as Problem));
      } catch {
        return results;
      }
    }
  }
}

/** The value where it is JSON, whatever kind the server says it is: large ones it does not look into. Else the bytes. */
export function valueOf(payload: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload)) as unknown;
  } catch {
    return payload;
  }
}

type Given = Omit<Lease, "payload_elsewhere"> & { readonly payload_base64?: string | null };

interface Result {
  readonly error?: Problem;
  readonly [name: string]: unknown;
}

function reported(result: Result): Reported | Problem {
  return result.error ?? (result as unknown as Reported);
}

function query(values: { [name: string]: string | number | undefined }): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
}

function unbase64(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "base64"));
}

