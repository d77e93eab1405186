/** A worker, or a producer, in TypeScript for `sdk/tests/killing.py`: writes down what the server has acknowledged. */

import { appendFileSync } from "node:fs";

import { Client, Worker } from "onceward";

const [what, url = "", lifecycle = "", book = "", many = "0"] = process.argv.slice(2);
const client = new Client({ url, timeout: 5_000, patience: 60_000 });

if (what === "work") {
  const worker = new Worker({ client, name: "typescript", concurrency: 4, lease: 3_000, wait: 1_000, log: () => {} });
  worker.handle(lifecycle, async (job) => {
    await job.commit({ by: "typescript", of: job.payload });
    appendFileSync(book, `${job.id} ${job.token}\n`);
  });
  await worker.run();
} else {
  for (let number = 0; number < Number(many); number += 1) {
    const name = `typescript ${number}`;
    const made = await client.create(lifecycle, { fields: { name }, payload: name, once: name });
    appendFileSync(book, `${made.id} ${name}\n`);
  }
}
