/** A TypeScript worker or producer for `sdk/tests/kill_test.py`. Logs the operations that the server acknowledged. */

import { appendFileSync } from "node:fs";

import { Client, Worker } from "onceward";

const [mode, url = "", lifecycle = "", ackFile = "", count = "0"] = process.argv.slice(2);
const client = new Client({ url, retryPolicy: { responseTimeout: 5_000, retryTimeout: 60_000 } });

if (mode === "work") {
  const worker = new Worker({ client, name: "typescript", concurrency: 4, lease: 3_000, maxWait: 1_000, log: () => {} });
  worker.handle(lifecycle, async (job) => {
    await job.commit({ by: "typescript", of: job.payload });
    appendFileSync(ackFile, `${job.id} ${job.token}\n`);
  });
  await worker.run();
} else {
  for (let number = 0; number < Number(count); number += 1) {
    const name = `typescript ${number}`;
    const created = await client.create(lifecycle, { fields: { name }, payload: name, idempotencyKey: name });
    appendFileSync(ackFile, `${created.id} ${name}\n`);
  }
}
