/** A server that asks for keys: a producer of its own, and a worker that sees what it holds and no more. */

import assert from "node:assert/strict";
import { it } from "node:test";

import { Client, Refused, Worker } from "onceward";

import { Server, TASK, until } from "./serving.js";

it("lets each key do what it is for", async () => {
  const server = await Server.begin();
  try {
    await server.kill();
    const [shop, rival] = [await server.key("shop", "producer"), await server.key("rival", "producer")];
    const hand = await server.key("hand", "worker");
    await server.start();
    const { url } = server;
    const refused = (status: number) => (error: unknown) => error instanceof Refused && error.status === status;
    await assert.rejects(new Client({ url }).create(TASK), refused(401));
    const producer = new Client({ url, key: shop });
    const made = await producer.create(TASK, { payload: "x".repeat(100_000) });
    await assert.rejects(new Client({ url, key: rival }).get(made.id), refused(404));
    const worker = new Worker({ url, key: hand, wait: 1_000, log: () => {} });
    worker.handle<string>(TASK, (job) => job.payload.length);
    const running = worker.run({ signals: false });
    await until(producer, made.id, "done");
    worker.stop();
    await running;
    assert.equal((await producer.effect(made.id)).result, 100_000);
    await assert.rejects(worker.client.get(made.id), refused(404));
  } finally {
    await server.close();
  }
});
