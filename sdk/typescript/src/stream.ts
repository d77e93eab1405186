/** The log as it grows: server-sent events, read on across breaks. */

import { OncewardError, Unreachable, refused } from "./errors.js";
import type { Transport } from "./http.js";
import { askedOf, Backoff, mayPass, pause } from "./patience.js";
import type { Entry, Problem } from "./records.js";

export interface StreamOptions {
  /** The entry after which to begin; without it, from now on. */
  after?: number;
  lifecycle?: string;
  record?: string;
  signal?: AbortSignal;
}

/** A server that says nothing for so long, not even that it is there, is taken for gone. */
const SILENCE = 60_000;

/**
 * Entries in their order, each once. `close`, or leaving the loop, ends it.
 *
 * After a break it goes on behind `seq`: the last entry that was handed out, or, before the first, the place that the server has named
 * when the stream began. Keep that number to go on after a restart of your own. Where the log was pruned past it, `Refused` with the
 * code `pruned` is thrown.
 */
export class Stream implements AsyncIterable<Entry> {
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

  async *[Symbol.asyncIterator](): AsyncGenerator<Entry> {
    let backoff = new Backoff();
    while (!this.#closed.signal.aborted) {
      try {
        for await (const entry of this.#once()) {
          backoff = new Backoff();
          yield entry;
        }
      } catch (error) {
        if (this.#closed.signal.aborted) return;
        if (!(error instanceof OncewardError) || !mayPass(error)) throw error;
        await pause(backoff.wait(askedOf(error)), this.#closed.signal);
      }
    }
  }

  /** One connection's worth of entries. */
  async *#once(): AsyncGenerator<Entry> {
    const own = new AbortController();
    const abort = (): void => own.abort();
    this.#closed.signal.addEventListener("abort", abort);
    let silence = setTimeout(abort, SILENCE);
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
      const response = await this.#transport.open({ method: "GET", path, headers, signal: own.signal });
      for await (const message of messages(response)) {
        clearTimeout(silence);
        silence = setTimeout(abort, SILENCE);
        if (message === undefined) continue;
        if (message.data === "") {
          // A place alone says how far the log has been looked through.
          if (message.place !== undefined) this.seq = Math.max(this.seq ?? 0, message.place);
          continue;
        }
        if (message.name === "error" || message.name === "problem") throw refused(JSON.parse(message.data) as Problem);
        const entry = JSON.parse(message.data) as Entry;
        if (this.seq !== undefined && entry.seq <= this.seq) continue;
        this.seq = entry.seq;
        yield entry;
      }
    } finally {
      clearTimeout(silence);
      this.#closed.signal.removeEventListener("abort", abort);
      own.abort();
    }
    throw new Unreachable("the stream has ended");
  }
}

interface Message {
  name: string;
  place: number | undefined;
  data: string;
}

/** What the server says; undefined for a sign of life. */
async function* messages(response: Response): AsyncGenerator<Message | undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  let name = "";
  let place: number | undefined;
  let data: string[] = [];
  try {
    for await (const chunk of response.body ?? []) {
      yield undefined;
      rest += decoder.decode(chunk as Uint8Array, { stream: true });
      const lines = rest.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines.map((line) => line.replace(/\r$/, ""))) {
        if (line.startsWith("event:")) name = line.slice(6).trim();
        else if (line.startsWith("id:")) place = placeOf(line.slice(3));
        else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        else if (line === "") {
          yield { name, place, data: data.join("\n") };
          name = "";
          data = [];
        }
      }
    }
  } catch (error) {
    if (error instanceof OncewardError) throw error;
    throw new Unreachable(`the stream broke off: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function placeOf(text: string): number {
  const place = Number(text);
  if (!Number.isSafeInteger(place)) throw new Unreachable(`the stream tells a place that is none: ${text}`);
  return place;
}
