/** Sends single requests. */

import { errorFromProblem, UnreachableError } from "./errors.js";
import type { Problem } from "./types.js";

/** Node's error codes for a connection that was not established. */
const NOT_SENT_CODES = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];

function isNotSent(cause: unknown): boolean {
  return cause instanceof Error && "code" in cause && NOT_SENT_CODES.includes(String(cause.code));
}

export interface ApiRequest {
  method: "GET" | "POST";
  path: string;
  /** An object to serialize, or JSON text. */
  body?: object | string;
  headers?: { [name: string]: string };
  /** Time for the complete response, in milliseconds. */
  timeout: number;
  signal?: AbortSignal | undefined;
}

export class Transport {
  readonly #baseUrl: string;
  readonly #headers: { [name: string]: string };

  constructor(url: string, apiKey: string | undefined) {
    if (url.includes("@")) {
      // The message does not contain the URL, because errors are logged.
      throw new TypeError("the server URL contains a user name or password; pass the API key as `apiKey` or in ONCEWARD_KEY");
    }
    if (!/^https?:$/.test(new URL(url).protocol)) throw new TypeError(`invalid server URL: ${url}; write it as http://HOST:PORT`);
    this.#baseUrl = url.replace(/\/+$/, "");
    this.#headers = { accept: "application/json, application/problem+json" };
    if (apiKey) this.#headers["authorization"] = `Bearer ${apiKey}`;
  }

  /** Sends a request once. Throws `UnreachableError` without a response and `RefusedError` for an error status. */
  async sendForJson(request: ApiRequest): Promise<unknown> {
    return this.#withTimeout(request, async (signal) => {
      const response = await this.#fetch(request, signal);
      return (await response.json()) as unknown;
    });
  }

  async sendForBytes(request: ApiRequest): Promise<Uint8Array> {
    return this.#withTimeout(request, async (signal) => new Uint8Array(await (await this.#fetch(request, signal)).arrayBuffer()));
  }

  /** Opens a response that is read as it arrives. The caller's signal ends it. */
  async open(request: Omit<ApiRequest, "timeout"> & { signal: AbortSignal }): Promise<Response> {
    try {
      return await this.#fetch(request, request.signal);
    } catch (error) {
      throw this.#toUnreachable(error);
    }
  }

  async #withTimeout<T>(request: ApiRequest, send: (signal: AbortSignal) => Promise<T>): Promise<T> {
    // Not `AbortSignal.any`: in Node 20, combined signals are not garbage-collected while their sources live.
    const controller = new AbortController();
    const abort = (): void => controller.abort();
    const timer = setTimeout(abort, request.timeout);
    request.signal?.addEventListener("abort", abort);
    if (request.signal?.aborted) abort();
    try {
      return await send(controller.signal);
    } catch (error) {
      throw this.#toUnreachable(error);
    } finally {
      clearTimeout(timer);
      request.signal?.removeEventListener("abort", abort);
    }
  }

  async #fetch(request: Omit<ApiRequest, "timeout">, signal: AbortSignal): Promise<Response> {
    const contentType = request.body ? { "content-type": "application/json" } : {};
    const allHeaders = { ...this.#headers, ...contentType, ...request.headers };
    // The server reads headers as UTF-8; fetch accepts only bytes, written as Latin-1 characters.
    const headers = Object.entries(allHeaders).map(([name, value]): [string, string] => [
      name,
      Buffer.from(value).toString("latin1"),
    ]);
    const body = request.body === undefined ? null : toJson(request.body);
    const { method, path } = request;
    const response = await fetch(this.#baseUrl + path, { method, headers, body, signal, redirect: "error" });
    if (response.ok) return response;
    const problem = parseProblem(response.status, response.headers.get("retry-after"), await response.text());
    if (problem.status !== 401 || this.#headers["authorization"] !== undefined) throw errorFromProblem(problem);
    const detail = `${problem.detail ?? problem.title}; no API key was given: pass it as \`apiKey\` or set ONCEWARD_KEY`;
    throw errorFromProblem({ ...problem, detail });
  }

  /**
   * Converts network errors. Without a response, fetch throws a TypeError with a cause; after an abort, a DOMException; for truncated
   * JSON, a SyntaxError. A TypeError without a cause is a mistake of the caller and stays.
   */
  #toUnreachable(error: unknown): unknown {
    if (!(error instanceof Error)) return error;
    const cause = error.cause instanceof Error ? error.cause.message : undefined;
    const isNetworkError = error.name === "TypeError" ? cause !== undefined : ["AbortError", "SyntaxError"].includes(error.name);
    if (!isNetworkError) return error;
    const notSent = isNotSent(error.cause);
    return new UnreachableError(`${this.#baseUrl}: ${cause ?? error.message}`, { cause: error, notSent });
  }
}

/** A request body is not JSON. */
export class SerializationError extends Error {}

function toJson(body: object | string): string {
  if (typeof body === "string") return body;
  try {
    return JSON.stringify(body);
  } catch (error) {
    throw new SerializationError(error instanceof Error ? error.message : String(error));
  }
}

function parseProblem(status: number, retryAfter: string | null, text: string): Problem {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  const seconds = Number(retryAfter ?? Number.NaN);
  const delay = Number.isFinite(seconds) ? { retry_after_ms: seconds * 1_000 } : {};
  if (typeof body === "object" && body !== null && "code" in body) return { ...delay, ...body, status } as Problem;
  // Not Onceward's answer, for example that of a proxy.
  return { ...delay, status, code: `http_${status}`, title: text.slice(0, 200) };
}
