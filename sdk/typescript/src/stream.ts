/** Follows the log over server-sent events and reconnects where it broke off. */

import { errorFromProblem, OncewardError, UnreachableError } from "./errors.js";
import { Backoff, isRetryable, retryAfterOf, sleep } from "./retry_policy.js";
import type { Transport } from "./transport.js";
import type { LogEntry, Problem } from "./types.js";

export interface StreamOptions {
  /** Start after this `seq`. Default: the end of the log. */
  after?: number;
  lifecycle?: string;
  record?: string;
  signal?: AbortSignal;
}

/** In milliseconds. The server sends a keep-alive every 15 seconds, so after four missed ones the connection is dead. */
const STREAM_IDLE_TIMEOUT = 60_000;

/**
 * Entries of the log, in order, each once. `close`, or leaving the loop, ends the stream.
 *
 * If the connection breaks, the stream reconnects after `seq`: the last entry that it returned, or, before the first one, the position
 * that the server sent at the start. Store `seq` to continue after a restart of your program. Throws `RefusedError` with the code `pruned`
 * if the log was pruned past it.
 */
export class LogStream implements AsyncIterable<LogEntry> {
  seq: number | undefined;
  readonly #transport: Transport;
  readonly #options: StreamOptions;
  readonly #closed = new AbortController();

  constructor(transport: Transport, options: StreamOptions) {
    this.#transport = transport;
    this.#options = options;
    this.seq = options.after;
    options.signal?.addEventListener("abort", () => this.close(), { once: true });
    if (options.signal?.aborted) this.close();
  }

  close(): void {
    this.#closed.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<LogEntry> {
    let backoff = new Backoff();
    while (!this.#closed.signal.aborted) {
      try {
        for await (const entry of this.#readConnection()) {
          backoff = new Backoff();
          yield entry;
        }
      } catch (error) {
        if (this.#closed.signal.aborted) return;
        if (!(error instanceof OncewardError) || !isRetryable(error)) throw error;
        await sleep(backoff.nextDelay(retryAfterOf(error)), this.#closed.signal);
      }
    }
  }

  /** Returns the entries of one connection. Throws when it ends. */
  async *#readConnection(): AsyncGenerator<LogEntry> {
    const controller = new AbortController();
    const abort = (): void => controller.abort();
    this.#closed.signal.addEventListener("abort", abort);
    let idleTimer = setTimeout(abort, STREAM_IDLE_TIMEOUT);
    try {
      const query = new URLSearchParams();
      const headers: { [name: string]: string } = { accept: "text/event-stream" };
      if (this.#options.lifecycle !== undefined) query.set("lifecycle", this.#options.lifecycle);
      if (this.#options.record !== undefined) query.set("record", this.#options.record);
      if (this.seq !== undefined) {
        query.set("after", String(this.seq));
        headers["last-event-id"] = String(this.seq);
      }
      const path = query.size > 0 ? `/v1/stream?${query}` : "/v1/stream";
      const response = await this.#transport.open({ method: "GET", path, headers, signal: controller.signal });
      for await (const message of parseMessages(response)) {
        clearTimeout(idleTimer);
        idleTimer = setTimeout(abort, STREAM_IDLE_TIMEOUT);
        if (message === undefined) continue;
        if (message.data === "") {
          // An id without data says up to which `seq` the server has read the log.
          if (message.seq !== undefined) this.seq = Math.max(this.seq ?? 0, message.seq);
          continue;
        }
        if (message.name === "error" || message.name === "problem") throw errorFromProblem(JSON.parse(message.data) as Problem);
        const entry = JSON.parse(message.data) as LogEntry;
        if (this.seq !== undefined && entry.seq <= this.seq) continue;
        this.seq = entry.seq;
        yield entry;
      }
    } finally {
      clearTimeout(idleTimer);
      this.#closed.signal.removeEventListener("abort", abort);
      controller.abort();
    }
    throw new UnreachableError("the server ended the stream");
  }
}

interface SseMessage {
  name: string;
  seq: number | undefined;
  data: string;
}

/** Returns the messages of a response, and undefined for each received chunk, which also resets the idle timeout. */
async function* parseMessages(response: Response): AsyncGenerator<SseMessage | undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  let name = "";
  let seq: number | undefined;
  let data: string[] = [];
  try {
    for await (const chunk of response.body ?? []) {
      yield undefined;
      rest += decoder.decode(chunk as Uint8Array, { stream: true });
      const lines = rest.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines.map((line) => line.replace(/\r$/, ""))) {
        if (line.startsWith("event:")) name = line.slice(6).trim();
        else if (line.startsWith("id:")) seq = parseSeq(line.slice(3));
        else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        else if (line === "") {
          yield { name, seq, data: data.join("\n") };
          name = "";
          data = [];
        }
      }
    }
  } catch (error) {
    if (error instanceof OncewardError) throw error;
    throw new UnreachableError(`the stream broke off: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function parseSeq(text: string): number {
  const seq = Number(text);
  if (!Number.isSafeInteger(seq)) throw new UnreachableError(`the stream has an id that is not a sequence number: ${text}`);
  return seq;
}
