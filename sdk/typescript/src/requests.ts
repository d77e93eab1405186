/** What a caller sends, and how it looks as JSON. */

import type { WorkError } from "./errors.js";

/** A key that nobody has used before. */
export function newKey(): string {
  return crypto.randomUUID();
}

/** A record to make. */
export interface New {
  fields?: { readonly [name: string]: unknown };
  /** A JSON value, or bytes. */
  payload?: unknown;
  id?: string;
  owner?: string;
  /** Its idempotency key. Without one, a key is made up, so that a retry of the call makes no second record. */
  once?: string;
}

/** An event to fire. */
export interface Event {
  record: string;
  event: string;
  input?: { readonly [name: string]: unknown };
  /** Only if the record is still at this version. */
  version?: number;
  once?: string;
}

/** How long a lease lasts, in milliseconds; without it, as the lifecycle says. */
export interface Lasting {
  lease?: number;
}

/** A worker's report. */
export type Report = { execution: string; token: number } & (
  | { do: "start" | "finish" | "yield" }
  | ({ do: "heartbeat" } & Lasting)
  | { do: "commit"; result?: unknown; finish?: boolean }
  | { do: "fail"; error: WorkError }
);

export function newBody(record: New): object {
  const { fields, id, owner } = record;
  return { id, fields, owner, ...content("payload", record.payload) };
}

export function eventBody(event: Event, key: string): object {
  return { record: event.record, event: event.event, input: event.input, version: event.version, key };
}

export function reportBody(report: Report): object {
  const { token } = report;
  switch (report.do) {
    case "heartbeat":
      return { token, lease_ms: whole(report.lease) };
    case "commit":
      return { token, ...(report.finish ? { finish: true } : {}), ...content("result", report.result) };
    case "fail": {
      const { code, message, retryable, after } = report.error;
      return { token, error: { code, message, retryable, retry_after_ms: whole(after) } };
    }
    default:
      return { token };
  }
}

/** Milliseconds as the server takes them. */
export function whole(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : Math.max(1, Math.round(milliseconds));
}

/** A payload or a result: a JSON value as it is, bytes as base64, undefined as nothing. */
function content(name: string, value: unknown): object {
  if (value === undefined) return {};
  if (value instanceof Uint8Array) return { [`${name}_base64`]: Buffer.from(value).toString("base64") };
  return { [name]: value };
}
