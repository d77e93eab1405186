/** A proxy between a client and the real server. Tests make it give responses that the server gives rarely. */

import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

export interface ProxyResponse {
  status: number;
  body: string;
  headers?: { [name: string]: string };
}

interface LeaseItem {
  record: { id: string };
  expires_in_ms?: number;
}

/** A request of the client. `forward` sends it to the real server. */
export class ProxyRequest {
  constructor(
    readonly method: string,
    readonly path: string,
    readonly headers: IncomingHttpHeaders,
    readonly body: string,
    readonly upstream: string,
    readonly clientClosed: AbortSignal,
  ) {}

  get isHeartbeat(): boolean {
    return this.path.endsWith("/heartbeat") || this.batchedHeartbeats > 0;
  }

  /** The number of heartbeats in a batch of reports. */
  get batchedHeartbeats(): number {
    if (this.path !== "/v1/executions/batch") return 0;
    const { reports } = JSON.parse(this.body) as { reports: { do: string }[] };
    return reports.filter((report) => report.do === "heartbeat").length;
  }

  get isLease(): boolean {
    return this.path === "/v1/leases";
  }

  async forward(): Promise<ProxyResponse> {
    const headers: [string, string][] = [];
    for (const name of ["content-type", "idempotency-key"]) {
      const value = this.headers[name];
      if (typeof value === "string") headers.push([name, value]);
    }
    const body = this.method === "GET" ? null : this.body;
    // If the client closes its connection, the server must notice, or it would lease a job to a caller that is gone.
    const response = await fetch(this.upstream + this.path, { method: this.method, headers, body, signal: this.clientClosed });
    const contentType = response.headers.get("content-type") ?? "";
    return { status: response.status, body: await response.text(), headers: { "content-type": contentType } };
  }
}

/** Returns the response. Undefined closes the connection without a response. */
export type Responder = (request: ProxyRequest) => Promise<ProxyResponse | undefined> | ProxyResponse | undefined;

/** A refusal in the form of the server's. */
export function problemResponse(status: number, code: string, members: object = {}): ProxyResponse {
  const body = JSON.stringify({ type: "about:blank", title: "made by the test", status, code, ...members });
  return { status, body, headers: { "content-type": "application/problem+json" } };
}

/** Returns the jobs of a response to a lease call. */
export function leasedJobs(response: ProxyResponse): LeaseItem[] {
  return (JSON.parse(response.body) as { executions: LeaseItem[] }).executions;
}

/** A proxy that answers with the responses of a function. */
export class FaultProxy {
  private constructor(
    readonly url: string,
    readonly server: Server,
  ) {}

  static async start(upstream: string, respond: Responder): Promise<FaultProxy> {
    const answer = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
      const clientClosed = new AbortController();
      outgoing.on("close", () => clientClosed.abort());
      const { method = "", url = "", headers } = incoming;
      const response = await respond(new ProxyRequest(method, url, headers, await text(incoming), upstream, clientClosed.signal));
      if (response === undefined) incoming.socket.destroy();
      else outgoing.writeHead(response.status, response.headers).end(response.body);
    };
    const server = createServer((incoming, outgoing) => {
      // Fails if the client or the server closed its connection.
      answer(incoming, outgoing).catch(() => incoming.socket.destroy());
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new FaultProxy(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, server);
  }

  close(): void {
    this.server.close();
    this.server.closeAllConnections();
  }
}
