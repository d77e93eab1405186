/** Stands between a client and the real server, and answers in its place: for answers that the real one gives rarely. */

import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

export interface Said {
  status: number;
  body: string;
  headers?: { [name: string]: string };
}

interface Leased {
  record: { id: string };
  expires_in_ms?: number;
}

/** What the client wants to know. `passOn` asks the real server. */
export class Asked {
  constructor(
    readonly method: string,
    readonly path: string,
    readonly headers: IncomingHttpHeaders,
    readonly body: string,
    readonly upstream: string,
    readonly gone: AbortSignal,
  ) {}

  get isHeartbeat(): boolean {
    return this.path.endsWith("/heartbeat") || this.beats > 0;
  }

  /** How many heartbeats come in one batch. */
  get beats(): number {
    if (this.path !== "/v1/executions/batch") return 0;
    const { reports } = JSON.parse(this.body) as { reports: { do: string }[] };
    return reports.filter((report) => report.do === "heartbeat").length;
  }

  get isLease(): boolean {
    return this.path === "/v1/leases";
  }

  async passOn(): Promise<Said> {
    const headers: [string, string][] = [];
    for (const name of ["content-type", "idempotency-key"]) {
      const value = this.headers[name];
      if (typeof value === "string") headers.push([name, value]);
    }
    const body = this.method === "GET" ? null : this.body;
    // Who hangs up is known to the server behind, too: it would give a job to nobody.
    const answer = await fetch(this.upstream + this.path, { method: this.method, headers, body, signal: this.gone });
    return { status: answer.status, body: await answer.text(), headers: { "content-type": answer.headers.get("content-type") ?? "" } };
  }
}

/** What to answer; undefined hangs up without a word. */
export type Play = (asked: Asked) => Promise<Said | undefined> | Said | undefined;

/** A refusal, as the server words it. */
export function trouble(status: number, code: string, more: object = {}): Said {
  const body = JSON.stringify({ type: "about:blank", title: "made up", status, code, ...more });
  return { status, body, headers: { "content-type": "application/problem+json" } };
}

/** The jobs of an answer to a lease. */
export function jobsOf(said: Said): Leased[] {
  return (JSON.parse(said.body) as { executions: Leased[] }).executions;
}

/** A server that plays what the test says. */
export class Between {
  private constructor(
    readonly url: string,
    readonly server: Server,
  ) {}

  static async begin(upstream: string, play: Play): Promise<Between> {
    const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      const gone = new AbortController();
      response.on("close", () => gone.abort());
      const asked = new Asked(request.method ?? "", request.url ?? "", request.headers, await text(request), upstream, gone.signal);
      const said = await play(asked);
      if (said === undefined) request.socket.destroy();
      else response.writeHead(said.status, said.headers).end(said.body);
    };
    const server = createServer((request, response) => {
      // The client has given up, or the server behind has.
      answer(request, response).catch(() => request.socket.destroy());
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new Between(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, server);
  }

  close(): void {
    this.server.close();
    this.server.closeAllConnections();
  }
}
