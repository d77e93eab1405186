/**
 * Client and worker library for Onceward, a durable lifecycle engine.
 *
 * `Client` calls a server. `Worker` leases jobs, runs your handlers, keeps the leases and reports the results.
 */
export { Client, type ClientOptions } from "./client.js";
export {
  AlreadyCommittedError,
  Failure,
  JobStoppedError,
  LeaseLostError,
  OncewardError,
  RefusedError,
  RetryableFailure,
  TerminalFailure,
  UnreachableError,
} from "./errors.js";
export type { Job, StopReason } from "./job.js";
export type { EventRequest, LeaseLength, NewRecord, Report } from "./requests.js";
export type { RetryPolicy } from "./retry_policy.js";
export type { LogStream, StreamOptions } from "./stream.js";
export { isProblem } from "./types.js";
export type {
  BatchResult,
  Effect,
  Execution,
  FireResult,
  Json,
  LeasedJob,
  LogEntry,
  PayloadRef,
  Problem,
  Record,
  RecordPage,
  ReportResult,
} from "./types.js";
export { Worker, type Handler, type WorkerConfig } from "./worker.js";
