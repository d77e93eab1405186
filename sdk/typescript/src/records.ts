/** What the server answers with. Times are RFC 3339 in UTC, as they came. */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** Why a call was not taken (`application/problem+json`). Codes are stable; texts are for people. */
export interface Problem {
  readonly status: number;
  readonly code: string;
  readonly title?: string;
  readonly detail?: string;
  /** Where a move was refused: the record's state, the event, and the reason. */
  readonly state?: string | null;
  readonly event?: string;
  readonly reason?: string;
  /** With `already_committed`: the execution that won. */
  readonly effect?: { readonly execution: string; readonly token: number };
  /** How long to wait before trying again, where the server says so. */
  readonly retry_after_ms?: number;
  readonly [more: string]: unknown;
}

/** Tells, in an answer to many calls, what was refused from what was taken. */
export function isProblem<Taken extends object>(answer: Taken | Problem): answer is Problem {
  return "code" in answer && "status" in answer;
}

/** One living thing. */
export interface Record<Fields = { readonly [name: string]: unknown }> {
  readonly id: string;
  readonly lifecycle: string;
  readonly state: string;
  readonly version: number;
  readonly owner: string;
  readonly fields: Fields;
  readonly attempt: number;
  readonly payload?: { readonly sha256: string; readonly bytes: number } | null;
  readonly created_at: string;
  readonly updated_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
}

/** One turn of one worker at a job. Its token is the number of the attempt. */
export interface Execution {
  readonly id: string;
  readonly token: number;
  readonly status: "LEASED" | "IN_PROGRESS" | "COMMITTED" | "DONE" | "ABORTED";
  readonly worker?: string;
  readonly expires_at?: string | null;
}

/** A job in a worker's hands, until `expires_at` or the next heartbeat. */
export interface Lease {
  readonly id: string;
  readonly token: number;
  readonly attempt: number;
  readonly expires_at: string;
  /**
   * How much of it was left when the server answered: less than all where a repeated call has found it again, and zero where it is
   * over. Not there where the server does not say so.
   */
  readonly expires_in_ms?: number;
  readonly record: Record;
  /** The JSON value or the bytes; undefined where there is none, or where it is too large to come along. */
  readonly payload?: unknown;
  /** The payload has stayed behind: `Client.payload` fetches it. */
  readonly payload_elsewhere: boolean;
  /** W3C trace context of whoever made the job, where there is some. */
  readonly traceparent?: string | null;
}

/** The answer to a worker's report. Both are null where this key may not look at the record any more: a worker sees what it holds. */
export interface Reported {
  readonly execution: Execution | null;
  readonly record: Record | null;
  /** The job is to be given up (with a heartbeat). */
  readonly stop?: boolean;
}

/** The answer to an event: the record after it, and the ids of those that it made. */
export interface Fired {
  /** Null where the event was fired before under the same key, and the record is no longer there, or no longer for this key. */
  readonly record: Record | null;
  readonly spawned: readonly string[];
}

/** What the committed execution of a job left behind. */
export interface Effect {
  readonly token: number;
  readonly result?: unknown;
}

/** One entry of the log. */
export interface Entry {
  readonly seq: number;
  readonly record?: string | null;
  readonly version: number;
  readonly at: string;
  readonly event: string;
  /** Who called; in the first entry of an operation. */
  readonly actor?: string;
  /** The state that the record entered, where it did. */
  readonly state?: string;
  readonly [more: string]: unknown;
}

/** Some records, and where to go on. */
export interface Page {
  readonly records: readonly Record[];
  readonly next?: string | null;
}
