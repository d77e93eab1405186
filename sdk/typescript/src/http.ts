/** One question and its answer. */

import { Unreachable, refused } from "./errors.js";
import type { Problem } from "./records.js";

/** How Node calls it where no connection was made. */
const UNHEARD = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];

function isUnheard(cause: unknown): boolean {
  return cause instanceof Error && "code" in cause && UNHEARD.includes(String(cause.code));
}

export interface Ask {
  method: "GET" | "POST";
  path: string;
  /** An object to be made JSON of, or JSON. */
  body?: object | string;
  headers?: { [name: string]: string };
  /** For the whole of it, in milliseconds. */
  timeout: number;
  signal?: AbortSignal | undefined;
}

export class Transport {
  readonly #base: string;
  readonly #headers: { [name: string]: string };

  constructor(url: string, key: string | undefined) {
    if (url.includes("@")) {
      // Not shown, as it would be in every error from now on.
      throw new TypeError("a URL with a name or password in it is not taken: give the key by `key` or ONCEWARD_KEY");
    }
    if (!/^https?:$/.test(new URL(url).protocol)) throw new TypeError(`not the URL of a server: ${url}`);
    this.#base = url.replace(/\/+$/, "");
    this.#headers = { accept: "application/json, application/problem+json" };
    if (key) this.#headers["authorization"] = `Bearer ${key}`;
  }

  /** One try. `Unreachable` where no answer came, `Refused` where it was no. */
  async json(ask: Ask): Promise<unknown> {
    return this.#within(ask, async (signal) => {
      const response = await this.#open(ask, signal);
      return (await response.json()) as unknown;
    });
  }

  async bytes(ask: Ask): Promise<Uint8Array> {
    return this.#within(ask, async (signal) => new Uint8Array(await (await this.#open(ask, signal)).arrayBuffer()));
  }

  /** An answer that is read as it comes; the caller's signal ends it. */
  async open(ask: Omit<Ask, "timeout"> & { signal: AbortSignal }): Promise<Response> {
    try {
      return await this.#open(ask, ask.signal);
    } catch (error) {
      throw this.#known(error);
    }
  }

  async #within<T>(ask: Ask, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    // By hand: signals that are made of others live too long in Node 20.
    const own = new AbortController();
    const abort = (): void => own.abort();
    const timer = setTimeout(abort, ask.timeout);
    ask.signal?.addEventListener("abort", abort);
    if (ask.signal?.aborted) abort();
    try {
      return await work(own.signal);
    } catch (error) {
      throw this.#known(error);
    } finally {
      clearTimeout(timer);
      ask.signal?.removeEventListener("abort", abort);
    }
  }

  async #open(ask: Omit<Ask, "timeout">, signal: AbortSignal): Promise<Response> {
    const told = { ...this.#headers, ...(ask.body ? { "content-type": "application/json" } : {}), ...ask.headers };
    // As UTF-8, which is how the server reads them; fetch takes bytes only, written as the letters of Latin-1.
    const headers = Object.entries(told).map(([name, value]): [string, string] => [name, Buffer.from(value).toString("latin1")]);
    const body = ask.body === undefined ? null : textOf(ask.body);
    const response = await fetch(this.#base + ask.path, { method: ask.method, headers, body, signal, redirect: "error" });
    if (response.ok) return response;
    throw refused(problemOf(response.status, response.headers.get("retry-after"), await response.text()));
  }

  #known(error: unknown): unknown {
    // What fetch throws where there was no answer is a TypeError with a cause; where it was given up, a DOMException; JSON cut
    // short, a SyntaxError. A TypeError without a cause is a caller's mistake.
    if (!(error instanceof Error)) return error;
    const cause = error.cause instanceof Error ? error.cause.message : undefined;
    const isNetwork = error.name === "TypeError" ? cause !== undefined : ["AbortError", "SyntaxError"].includes(error.name);
    if (!isNetwork) return error;
    return new Unreachable(`${this.#base}: ${cause ?? error.message}`, { cause: error, unheard: isUnheard(error.cause) });
  }
}

/** No JSON can be made of it. */
export class Unspeakable extends Error {}

function textOf(body: object | string): string {
  if (typeof body === "string") return body;
  try {
    return JSON.stringify(body);
  } catch (error) {
    throw new Unspeakable(error instanceof Error ? error.message : String(error));
  }
}

function problemOf(status: number, retryAfter: string | null, text: string): Problem {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    found = undefined;
  }
  const seconds = Number(retryAfter ?? Number.NaN);
  const after = Number.isFinite(seconds) ? { retry_after_ms: seconds * 1_000 } : {};
  if (typeof found === "object" && found !== null && "code" in found) return { ...after, ...found, status } as Problem;
  // Somebody else has answered: a proxy, say.
  return { ...after, status, code: `http_${status}`, title: text.slice(0, 200) };
}
