/**
 * Client and workers for Onceward, a durable lifecycle engine.
 *
 * `Client` speaks to a server; `Worker` runs your functions for jobs, holds their leases and reports what became of them.
 */
export { Client, type ClientOptions } from "./client.js";
export { AlreadyCommitted, Cancelled, Fail, LeaseLost, OncewardError, Refused, Retry, Unreachable, WorkError } from "./errors.js";
export type { Job, Reason } from "./job.js";
export { isProblem } from "./records.js";
export type { Effect, Entry, Execution, Fired, Json, Lease, Page, Problem, Record, Reported } from "./records.js";
export type { Event, Lasting, New, Report } from "./requests.js";
export type { Stream, StreamOptions } from "./stream.js";
export { Worker, type Handler, type WorkerOptions } from "./worker.js";
