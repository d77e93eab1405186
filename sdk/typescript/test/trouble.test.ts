/** A server in trouble for a moment, played by a proxy before a real one: workers go on, and lose nothing. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request, type Server as Listener } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, it } from "node:test";

import { Client, Worker, type Handler } from "onceward";

import { Moment, Server, TASK, until } from "./serving.js";

let server: Server;
let client: Client;

before(async () => {
  server = await Server.begin();
  client = new Client({ url: server.url });
});
after(() => server.close());

/** Answers calls whose path has the word with these statuses, one after the other; then it passes them on. */
class Proxy {
  /** When a call was passed on after the trouble. */
  readonly over = new Moment<void>();
  readonly listener: Listener;

  constructor(
    readonly word: string,
    readonly statuses: number[],
  ) {
    this.listener = createServer((asked, answer) => {
      const status = asked.url?.includes(word) ? statuses.shift() : undefined;
      if (status !== undefined) {
        asked.resume();
        answer.writeHead(status, { "content-type": "application/problem+json" });
        answer.end(JSON.stringify({ type: "about:blank", title: "trouble", status, code: "internal", detail: "for a moment" }));
        return;
      }
      const { host: _, ...headers } = asked.headers;
      const passed = request(server.url + asked.url, { method: asked.method, headers }, (found) => {
        answer.writeHead(found.statusCode ?? 502, found.headers);
        found.pipe(answer);
        if (asked.url?.includes(word)) this.over.set();
      });
      passed.on("error", () => answer.destroy());
      answer.on("close", () => passed.destroy());
      asked.pipe(passed);
    });
  }

  async work(handler: Handler<never>, attempt = 1): Promise<void> {
    this.listener.listen(0, "127.0.0.1");
    await once(this.listener, "listening");
    const { port } = this.listener.address() as AddressInfo;
    const log = (): void => {};
    const worker = new Worker({ url: `http://127.0.0.1:${port}`, wait: 5_000, grace: 5_000, lease: 1_500, log });
    worker.handle<never>(TASK, handler);
    const running = worker.run({ signals: false });
    try {
      const made = await client.create(TASK, { payload: 1 });
      const done = await until(client, made.id, "done");
      assert.equal(done.attempt, attempt);
      assert.deepEqual(this.statuses, [], "there was trouble");
    } finally {
      worker.stop();
      await running;
      this.listener.close();
      this.listener.closeAllConnections();
    }
  }
}

describe("a worker, when the server is in trouble", () => {
  it("outlives errors of the server", () => new Proxy("/v1/leases", [500, 507, 503]).work(() => "done"));

  it("takes an error to a heartbeat for no lost lease", async () => {
    const proxy = new Proxy("/heartbeat", [500, 507]);
    await proxy.work(async (job) => {
      await proxy.over.wait();
      assert.equal(job.cancelled, false);
      return "done";
    });
  });

  it("sends a result again", () => new Proxy("/commit", [507, 503]).work(() => "done"));

  it("fails the attempt whose result breaks the server", () => new Proxy("/commit", [500]).work(() => "done", 2));
});

describe("words in headers and messages", () => {
  it("lets a key have any letters", async () => {
    const key = { payload: 1, once: "Müller: größer als 5 €" };
    assert.equal((await client.create(TASK, key)).id, (await client.create(TASK, key)).id);
  });

  it("knows a stream's place before the first entry", async () => {
    const stream = client.stream();
    const reading = (async () => {
      for await (const _ of stream);
    })();
    while (stream.seq === undefined) await new Promise((resolve) => setTimeout(resolve, 5));
    const after = stream.seq;
    stream.close();
    await reading;
    const made = await client.create(TASK, { payload: 1 });
    for await (const entry of client.stream({ after })) {
      assert.equal(entry.record, made.id);
      break;
    }
  });
});
