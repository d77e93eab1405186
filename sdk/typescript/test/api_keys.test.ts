/** Producers and a worker with API keys of different roles. */

import assert from "node:assert/strict";
import { it } from "node:test";

import { Client, RefusedError, Worker } from "onceward";

import { ServerProcess, TASK, waitForState } from "./server_process.js";

it("each API key allows only its role", async () => {
  const server = await ServerProcess.launch();
  try {
    await server.kill();
    await server.createApiKey("ops", "operator");
    const [shopKey, rivalKey] = [await server.createApiKey("shop", "producer"), await server.createApiKey("rival", "producer")];
    const workerKey = await server.createApiKey("hand", "worker");
    await server.start();
    const { url } = server;
    const refusedWith = (status: number) => (error: unknown) => error instanceof RefusedError && error.status === status;
    await assert.rejects(new Client({ url }).create(TASK), /^RefusedError: 401 .*no API key was given/);
    const producer = new Client({ url, apiKey: shopKey });
    const created = await producer.create(TASK, { payload: "x".repeat(100_000) });
    await assert.rejects(new Client({ url, apiKey: rivalKey }).get(created.id), refusedWith(404));
    const worker = new Worker({ url, apiKey: workerKey, maxWait: 1_000, log: () => {} });
    worker.handle<string>(TASK, (job) => job.payload.length);
    const running = worker.run({ signals: false });
    await waitForState(producer, created.id, "done");
    worker.stop();
    await running;
    assert.equal((await producer.effect(created.id)).result, 100_000);
    await assert.rejects(worker.client.get(created.id), refusedWith(404));
  } finally {
    await server.close();
  }
});
