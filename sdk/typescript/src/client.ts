/** HTTP client. Every call is safe to repeat, and the client retries it within its retry policy. */

import { errorFromProblem, type Failure } from "./errors.js";
import {
  newIdempotencyKey,
  toEventBody,
  toReportBatchItem,
  toReportBody,
  toRecordBody,
  toWholeMillis,
  type EventRequest,
  type LeaseLength,
  type NewRecord,
  type Report,
} from "./requests.js";
import { DEFAULT_RETRY_POLICY, isProblemRetryable, RetryTimer, type RetryPolicy } from "./retry_policy.js";
import { LogStream, type StreamOptions } from "./stream.js";
import { Transport, type ApiRequest } from "./transport.js";
import type {
  BatchResult,
  Effect,
  Execution,
  FireResult,
  LeasedJob,
  LogEntry,
  Problem,
  Record,
  RecordPage,
  ReportResult,
} from "./types.js";

export interface ClientOptions {
  /** Default: `ONCEWARD_URL`, or http://127.0.0.1:7171. */
  url?: string;
  /** Default: `ONCEWARD_KEY`. */
  apiKey?: string;
  retryPolicy?: Partial<RetryPolicy>;
}

export interface BatchOptions {
  /** Answer with whole records, as long as the response has space for them. */
  readonly returnRecords?: boolean;
}

export interface LeaseOptions extends LeaseLength {
  /** Default: 1. */
  maxJobs?: number;
  /** How long to wait for the first job, in milliseconds. Default: 0. */
  maxWait?: number;
  /** Whether to start the executions. Default: true. */
  start?: boolean;
  /** Calls with the same idempotency key return the same jobs. Without one, the client generates one for this call. */
  idempotencyKey?: string;
}

/** Records, events or reports in one request. The client splits longer lists. */
export const MAX_BATCH_ITEMS = 500;

/** Characters in one request. The server accepts 16 MB, and a character has up to four bytes. */
const MAX_BATCH_CHARS = 3 << 20;

export class Client {
  readonly url: string;
  readonly retryPolicy: RetryPolicy;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.url = options.url ?? process.env["ONCEWARD_URL"] ?? "http://127.0.0.1:7171";
    this.retryPolicy = { ...DEFAULT_RETRY_POLICY, ...options.retryPolicy };
    this.#transport = new Transport(this.url, options.apiKey ?? process.env["ONCEWARD_KEY"]);
  }

  // Producers

  /**
   * Creates a record. Calls with the same idempotency key return the same record, at any time and from any process. Without a key, the
   * client generates one for this call, so that its retries create no second record.
   */
  async create(lifecycle: string, record: NewRecord = {}): Promise<Record> {
    const headers = { "idempotency-key": record.idempotencyKey ?? newIdempotencyKey() };
    const path = `/v1/lifecycles/${encodeURIComponent(lifecycle)}/records`;
    return (await this.#post(path, toRecordBody(record), headers)) as Record;
  }

  /**
   * Creates many records. Each succeeds or fails on its own; the results have the order of `records`. Reads the records that the response
   * has no space for.
   */
  async createBatch(lifecycle: string, records: readonly NewRecord[]): Promise<(Record | Problem)[]> {
    const bodies = records.map((record) => ({ ...toRecordBody(record), key: record.idempotencyKey ?? newIdempotencyKey() }));
    const path = `/v1/lifecycles/${encodeURIComponent(lifecycle)}/records/batch`;
    const items = await this.#postBatches(path, "records", bodies);
    const results: (Record | Problem)[] = [];
    for (const item of items) {
      results.push(item.error ?? (item["record"] as Record | undefined) ?? (await this.get(item["id"] as string)));
    }
    return results;
  }

  /** Fires an event on a record. If `version` is given, the server refuses the event unless the record has that version. */
  async fire(
    record: string,
    event: string,
    options: Omit<EventRequest, "record" | "event"> & { token?: number } = {},
  ): Promise<FireResult> {
    const headers: { [name: string]: string } = { "idempotency-key": options.idempotencyKey ?? newIdempotencyKey() };
    if (options.version !== undefined) headers["if-match"] = `"${options.version}"`;
    const path = `/v1/records/${encodeURIComponent(record)}/events/${encodeURIComponent(event)}`;
    return (await this.#post(path, { input: options.input, token: options.token }, headers)) as FireResult;
  }

  /**
   * Fires many events. Each succeeds or fails on its own. With `returnRecords`, the results have the whole records, as long as the
   * response has space for them.
   */
  async fireBatch(events: readonly EventRequest[], options: BatchOptions = {}): Promise<(BatchResult | Problem)[]> {
    const bodies = events.map((event) => toEventBody(event, event.idempotencyKey ?? newIdempotencyKey()));
    return (await this.#postBatches("/v1/events/batch", "events", bodies, options)).map(toBatchResult);
  }

  // Queries

  async get(record: string): Promise<Record> {
    return (await this.#get(`/v1/records/${encodeURIComponent(record)}`)) as Record;
  }

  /** Returns one page of records. `records` iterates over all pages. */
  async list(
    lifecycle: string,
    options: { state?: string; owner?: string; limit?: number; cursor?: string } = {},
  ): Promise<RecordPage> {
    return (await this.#get(`/v1/records?${toQuery({ lifecycle, ...options })}`)) as RecordPage;
  }

  /** Iterates over all records that match. */
  async *records(lifecycle: string, options: { state?: string; owner?: string } = {}): AsyncGenerator<Record> {
    let cursor: string | undefined;
    do {
      const page: RecordPage = await this.list(lifecycle, cursor === undefined ? options : { ...options, cursor });
      yield* page.records;
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
  }

  /** Returns the complete log of a record, oldest entry first. */
  async history(record: string): Promise<LogEntry[]> {
    return (await this.#getPages(`/v1/records/${encodeURIComponent(record)}/history`, "entries")) as LogEntry[];
  }

  /** Returns all executions of a job, oldest first. */
  async executions(record: string): Promise<Execution[]> {
    return (await this.#getPages(`/v1/records/${encodeURIComponent(record)}/executions`, "executions")) as Execution[];
  }

  /** Returns the committed effect of a job. The server refuses with 404 if there is none. */
  async effect(record: string): Promise<Effect> {
    const effect = (await this.#get(`/v1/records/${encodeURIComponent(record)}/effect`)) as Effect & { result_base64?: string };
    return effect.result_base64 === undefined ? effect : { ...effect, result: fromBase64(effect.result_base64) };
  }

  /** Downloads the payload's bytes. */
  async payload(record: string): Promise<Uint8Array> {
    const path = `/v1/records/${encodeURIComponent(record)}/payload`;
    const timeout = this.retryPolicy.responseTimeout;
    return this.#withRetries(() => this.#transport.sendForBytes({ method: "GET", path, timeout }));
  }

  /** Downloads the payload in the form that a lease has: the value if it is JSON, otherwise the bytes. */
  async payloadValue(record: string): Promise<unknown> {
    return parsePayload(await this.payload(record));
  }

  /** Follows the log from the entry after `after`, by default from its end. The stream reconnects by itself. */
  stream(options: StreamOptions = {}): LogStream {
    return new LogStream(this.#transport, options);
  }

  // Workers

  /** Leases up to `maxJobs` jobs. Waits up to `maxWait` milliseconds for the first. */
  async lease(lifecycles: readonly string[], worker: string, options: LeaseOptions = {}): Promise<LeasedJob[]> {
    const idempotencyKey = options.idempotencyKey ?? newIdempotencyKey();
    return this.#withRetries(() => this.leaseOnce(lifecycles, worker, { ...options, idempotencyKey }));
  }

  /**
   * Like `lease`, without retries. After a failure, the same idempotency key returns the jobs that the failed call leased. With
   * `replayOnly`, the server leases no new ones.
   */
  async leaseOnce(
    lifecycles: readonly string[],
    worker: string,
    options: LeaseOptions & { idempotencyKey: string; replayOnly?: boolean; signal?: AbortSignal; responseTimeout?: number },
  ): Promise<LeasedJob[]> {
    const { maxJobs = 1, maxWait = 0, start = true, lease, idempotencyKey, replayOnly, signal } = options;
    const body = {
      lifecycles,
      worker,
      max: maxJobs,
      start,
      lease_ms: toWholeMillis(lease),
      wait_ms: maxWait > 0 ? toWholeMillis(maxWait) : undefined,
      again: replayOnly,
    };
    const timeout = (options.responseTimeout ?? this.retryPolicy.responseTimeout) + maxWait;
    const headers = { "idempotency-key": idempotencyKey };
    const response = await this.#transport.sendForJson({ method: "POST", path: "/v1/leases", body, headers, timeout, signal });
    return (response as { executions: LeaseResponseItem[] }).executions.map((item) => {
      // Each job on its own: an unreadable payload must not cost the others their leases.
      if (hasInfiniteNumber(item)) return { ...item, payload: undefined, payload_error: INFINITE_NUMBER, needs_payload_fetch: false };
      if (typeof item.payload_base64 === "string") {
        return { ...item, payload: fromBase64(item.payload_base64), needs_payload_fetch: false };
      }
      // `null` is either a payload of that text, or one that is too large for the response.
      const isTooLarge = (item.payload ?? null) === null && (item.record.payload?.bytes ?? 0) > "null".length;
      return { ...item, needs_payload_fetch: isTooLarge };
    });
  }

  start(execution: string, token: number): Promise<ReportResult> {
    return this.report({ execution, token, kind: "start" });
  }

  /** Extends the lease. If the result's `stop` is set, the worker must stop the job. */
  heartbeat(execution: string, token: number, options: LeaseLength = {}): Promise<ReportResult> {
    return this.report({ execution, token, kind: "heartbeat", ...options });
  }

  /** Commits the effect, at most once per job. `result` is a JSON value or bytes. */
  commit(execution: string, token: number, result?: unknown, options: { finish?: boolean } = {}): Promise<ReportResult> {
    return this.report({ execution, token, kind: "commit", result, ...options });
  }

  finish(execution: string, token: number): Promise<ReportResult> {
    return this.report({ execution, token, kind: "finish" });
  }

  fail(execution: string, token: number, failure: Failure): Promise<ReportResult> {
    return this.report({ execution, token, kind: "fail", failure });
  }

  /** Returns the job without counting a failure. */
  yield(execution: string, token: number): Promise<ReportResult> {
    return this.report({ execution, token, kind: "yield" });
  }

  report(report: Report): Promise<ReportResult> {
    return this.#withRetries(() => this.reportOnce(report));
  }

  /** Like `report`, without retries. `traceparent` is the W3C trace context of the job. */
  async reportOnce(report: Report, timeout = this.retryPolicy.responseTimeout, traceparent?: string | null): Promise<ReportResult> {
    const path = `/v1/executions/${encodeURIComponent(report.execution)}/${report.kind}`;
    const headers: { [name: string]: string } = traceparent ? { traceparent } : {};
    const body = toReportBody(report);
    return (await this.#transport.sendForJson({ method: "POST", path, body, headers, timeout })) as ReportResult;
  }

  /**
   * Sends many reports. Each succeeds or fails on its own. With `returnRecords`, the results have the executions and the whole records, as
   * long as the response has space for them.
   */
  async reportBatch(reports: readonly Report[], options: BatchOptions = {}): Promise<(BatchResult | Problem)[]> {
    const bodies = reports.map(toReportBatchItem);
    return (await this.#postBatches("/v1/executions/batch", "reports", bodies, options)).map(toBatchResult);
  }

  /** Like `reportBatch`, in one request and without retries. */
  async reportBatchOnce(
    reports: readonly Report[],
    timeout = this.retryPolicy.responseTimeout,
  ): Promise<(BatchResult | Problem)[]> {
    const body = { reports: reports.map(toReportBatchItem) };
    const response = await this.#transport.sendForJson({ method: "POST", path: "/v1/executions/batch", body, timeout });
    return (response as { results: BatchItem[] }).results.map(toBatchResult);
  }

  // Requests with retries

  async #withRetries<T>(send: () => Promise<T>): Promise<T> {
    const retryTimer = new RetryTimer(this.retryPolicy);
    for (;;) {
      try {
        return await send();
      } catch (error) {
        await retryTimer.waitOrThrow(error);
      }
    }
  }

  #get(path: string): Promise<unknown> {
    const request: ApiRequest = { method: "GET", path, timeout: this.retryPolicy.responseTimeout };
    return this.#withRetries(() => this.#transport.sendForJson(request));
  }

  #post(path: string, body: object | string, headers: { [name: string]: string } = {}): Promise<unknown> {
    const request: ApiRequest = { method: "POST", path, body, headers, timeout: this.retryPolicy.responseTimeout };
    return this.#withRetries(() => this.#transport.sendForJson(request));
  }

  async #getPages(path: string, member: string): Promise<unknown[]> {
    const all: unknown[] = [];
    let cursor: string | undefined;
    do {
      const pagePath = cursor === undefined ? path : `${path}?${toQuery({ cursor })}`;
      const page = (await this.#get(pagePath)) as { [name: string]: unknown };
      all.push(...(page[member] as unknown[]));
      cursor = (page["next"] as string | null | undefined) ?? undefined;
    } while (cursor !== undefined);
    return all;
  }

  async #postBatches(
    path: string,
    member: string,
    bodies: readonly object[],
    options: BatchOptions = {},
  ): Promise<BatchItem[]> {
    const all: BatchItem[] = [];
    let [batch, batchChars]: [string[], number] = [[], 0];
    for (const text of bodies.map((body) => JSON.stringify(body))) {
      if (batch.length > 0 && (batch.length === MAX_BATCH_ITEMS || batchChars + text.length > MAX_BATCH_CHARS)) {
        all.push(...(await this.#postBatch(path, member, batch, options)));
        [batch, batchChars] = [[], 0];
      }
      batch.push(text);
      batchChars += text.length;
    }
    return batch.length === 0 ? all : [...all, ...(await this.#postBatch(path, member, batch, options))];
  }

  /** Sends one batch and retries those of its items that failed temporarily. */
  async #postBatch(
    path: string,
    member: string,
    bodies: readonly string[],
    { returnRecords }: BatchOptions,
  ): Promise<BatchItem[]> {
    const items = new Array<BatchItem>(bodies.length);
    const retryTimer = new RetryTimer(this.retryPolicy);
    let pending = bodies.map((_, index) => index);
    for (;;) {
      const returns = returnRecords ? ',"return":"record"' : "";
      const text = `{"${member}":[${pending.map((index) => bodies[index]).join(",")}]${returns}}`;
      const response = (await this.#post(path, text)) as { results: BatchItem[] };
      pending.forEach((index, position) => (items[index] = response.results[position] as BatchItem));
      pending = pending.filter((index) => items[index]?.error && isProblemRetryable(items[index].error));
      const first = pending[0];
      if (first === undefined) return items;
      try {
        await retryTimer.waitOrThrow(errorFromProblem(items[first]?.error as Problem));
      } catch {
        return items;
      }
    }
  }
}

/**
 * Returns the value if the payload is JSON, otherwise the bytes. Ignores the content type, because the server does not inspect large
 * payloads. Throws a `PayloadError` if JavaScript cannot represent a number in it.
 */
export function parsePayload(payload: Uint8Array): unknown {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload)) as unknown;
  } catch {
    return payload;
  }
  if (hasInfiniteNumber(value)) throw new PayloadError(INFINITE_NUMBER);
  return value;
}

/** A payload is JSON, but JavaScript cannot represent it. */
export class PayloadError extends RangeError {}

/** The number is part of a payload, so it is not quoted. */
const INFINITE_NUMBER = "the payload has a number that is too large for JavaScript";

/** `JSON.parse` reads a number beyond the range of doubles as infinite. */
function hasInfiniteNumber(root: unknown): boolean {
  const open: unknown[] = [root];
  while (open.length > 0) {
    const value = open.pop();
    if (typeof value === "number" && !Number.isFinite(value)) return true;
    if (typeof value === "object" && value !== null) for (const part of Object.values(value)) open.push(part);
  }
  return false;
}

type LeaseResponseItem = Omit<LeasedJob, "needs_payload_fetch"> & { readonly payload_base64?: string | null };

interface BatchItem {
  readonly error?: Problem;
  readonly [name: string]: unknown;
}

function toBatchResult(item: BatchItem): BatchResult | Problem {
  const record = item["record"] as Record | undefined;
  const summary = record && { id: record.id, state: record.state, version: record.version };
  return item.error ?? ({ ...item, ...summary } as unknown as BatchResult);
}

function toQuery(values: { [name: string]: string | number | undefined }): string {
  const defined = Object.entries(values).filter(([, value]) => value !== undefined);
  return new URLSearchParams(defined.map(([name, value]) => [name, String(value)])).toString();
}

function fromBase64(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "base64"));
}
