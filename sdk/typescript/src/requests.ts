/** Requests of callers and workers, and their JSON. */

import type { Failure } from "./errors.js";

/** Returns a random idempotency key. */
export function newIdempotencyKey(): string {
  return crypto.randomUUID();
}

/** A record to create. */
export interface NewRecord {
  fields?: { readonly [name: string]: unknown };
  /** A JSON value, or bytes. */
  payload?: unknown;
  id?: string;
  owner?: string;
  /** By default the client generates one, so that a retry of the call creates no second record. */
  idempotencyKey?: string;
}

/** An event to fire on a record. */
export interface EventRequest {
  record: string;
  event: string;
  input?: { readonly [name: string]: unknown };
  /** Refuse unless the record has this version. */
  version?: number;
  idempotencyKey?: string;
}

/** The length of a lease in milliseconds. Default: that of the lifecycle, with a heartbeat that of the lease. */
export interface LeaseLength {
  lease?: number;
}

/** A worker's report on an execution. */
export type Report = { execution: string; token: number } & (
  | { kind: "start" | "finish" | "yield" }
  | ({ kind: "heartbeat" } & LeaseLength)
  | { kind: "commit"; result?: unknown; finish?: boolean }
  | { kind: "fail"; failure: Failure }
);

export function toRecordBody(record: NewRecord): object {
  const { fields, id, owner } = record;
  return { id, fields, owner, ...contentMembers("payload", record.payload) };
}

export function toEventBody(event: EventRequest, key: string): object {
  return { record: event.record, event: event.event, input: event.input, version: event.version, key };
}

export function toReportBody(report: Report): object {
  const { token } = report;
  switch (report.kind) {
    case "heartbeat":
      return { token, lease_ms: toWholeMillis(report.lease) };
    case "commit":
      return { token, ...(report.finish ? { finish: true } : {}), ...contentMembers("result", report.result) };
    case "fail": {
      const { code, message, retryable, retryAfter } = report.failure;
      return { token, error: { code, message, retryable, retry_after_ms: toWholeMillis(retryAfter) } };
    }
    default:
      return { token };
  }
}

export function toReportBatchItem(report: Report): object {
  return { execution: report.execution, do: report.kind, ...toReportBody(report) };
}

/** Rounds to whole milliseconds, at least one. */
export function toWholeMillis(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : Math.max(1, Math.round(milliseconds));
}

/** Returns the JSON member of a payload or result: a JSON value unchanged, bytes as base64, none for undefined. */
function contentMembers(name: string, value: unknown): object {
  if (value === undefined) return {};
  if (value instanceof Uint8Array) return { [`${name}_base64`]: Buffer.from(value).toString("base64") };
  return { [name]: value };
}
