/** Creates one job for each name. A second run with the same names creates no second job. */

import { Client } from "onceward";

const client = new Client();
const names = process.argv.length > 2 ? process.argv.slice(2) : ["first"];
for (const name of names) {
  const job = await client.create("execution.job", { payload: { words: `words of ${name}` }, idempotencyKey: `count ${name}` });
  console.log(job.id);
}
