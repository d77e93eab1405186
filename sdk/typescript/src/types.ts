/** Types of the API's JSON. Times are RFC 3339 in UTC, as received. */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** A refusal by the server (`application/problem+json`). Codes are stable; texts are for people. */
export interface Problem {
  readonly status: number;
  readonly code: string;
  readonly title?: string;
  readonly detail?: string;
  /** If an event was refused: the record's state, the event and the reason. */
  readonly state?: string | null;
  readonly event?: string;
  readonly reason?: string;
  /** With `already_committed`: the execution that committed. */
  readonly effect?: { readonly execution: string; readonly token: number };
  /** The delay before a retry that the server asked for. */
  readonly retry_after_ms?: number;
  readonly [member: string]: unknown;
}

/** Returns whether an item of a batch response was refused. */
export function isProblem<Accepted extends object>(item: Accepted | Problem): item is Problem {
  return "code" in item && "status" in item;
}

/** Hash and size of a payload. */
export interface PayloadRef {
  readonly sha256: string;
  readonly bytes: number;
}

/** A record. */
export interface Record<Fields = { readonly [name: string]: unknown }> {
  readonly id: string;
  readonly lifecycle: string;
  readonly state: string;
  readonly version: number;
  readonly owner: string;
  readonly fields: Fields;
  readonly attempt: number;
  readonly payload?: PayloadRef | null;
  readonly created_at: string;
  readonly updated_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
}

/** One leased attempt at a job. Its token is the attempt number. */
export interface Execution {
  readonly id: string;
  readonly token: number;
  readonly status: "LEASED" | "IN_PROGRESS" | "COMMITTED" | "DONE" | "ABORTED";
  readonly worker?: string;
  readonly expires_at?: string | null;
}

/** A leased job. The lease lasts until `expires_at`; a heartbeat extends it. */
export interface LeasedJob {
  /** Id of the execution. */
  readonly id: string;
  /** Fencing token, part of every report. */
  readonly token: number;
  readonly attempt: number;
  readonly expires_at: string;
  /**
   * The remaining lease when the server answered. Less than the whole if a repeated call returned the lease, and zero if it has expired.
   * Undefined from servers that do not send it.
   */
  readonly expires_in_ms?: number;
  readonly record: Record;
  /** The JSON value or the bytes. Undefined if there is no payload, or if it is too large for the response. */
  readonly payload?: unknown;
  /** Why the payload cannot be parsed; it is undefined then. The worker fails such a job for good. */
  readonly payload_error?: string;
  /** Whether the payload is too large for the response. `Client.payload` downloads it. */
  readonly needs_payload_fetch: boolean;
  /** W3C trace context, if the creator of the job sent one. */
  readonly traceparent?: string | null;
}

/** The result of a report. `execution` and `record` are null if the caller can no longer see the record, because its lease has ended. */
export interface ReportResult {
  readonly execution: Execution | null;
  readonly record: Record | null;
  /** With a heartbeat: whether the worker must stop the job. */
  readonly stop?: boolean;
}

/** The result of an event: the record after it, and the ids of the records that it created. */
export interface FireResult {
  /** Null if the call repeated an idempotency key and the caller can no longer see the record. */
  readonly record: Record | null;
  readonly spawned: readonly string[];
}

/** The result of one event or report of a batch. */
export interface BatchResult {
  /** The record's id. */
  readonly id: string;
  /** The record's state and version. Undefined if the caller can no longer see the record. */
  readonly state?: string;
  readonly version?: number;
  /** With a heartbeat: whether the worker must stop the job. */
  readonly stop?: boolean;
  /** Only if records were requested and the response had space for this one. */
  readonly record?: Record;
  /** Beside `record`: the execution that was reported on. */
  readonly execution?: Execution;
  /** Beside `record`: the ids of the records that the event created. */
  readonly spawned?: readonly string[];
}

/** The committed effect of a job. */
export interface Effect {
  readonly token: number;
  readonly result?: unknown;
}

/** An entry of the log. */
export interface LogEntry {
  readonly seq: number;
  readonly record?: string | null;
  readonly version: number;
  readonly at: string;
  readonly event: string;
  /** The caller. Only in an operation's first entry. */
  readonly actor?: string;
  /** The state that the record entered. */
  readonly state?: string;
  readonly [member: string]: unknown;
}

/** A page of records. */
export interface RecordPage {
  readonly records: readonly Record[];
  /** Cursor of the next page; null on the last page. */
  readonly next?: string | null;
}
