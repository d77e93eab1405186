/** Orders a count, once for each name given: running it again makes no second job. */

import { Client } from "onceward";

const client = new Client();
const names = process.argv.length > 2 ? process.argv.slice(2) : ["first"];
for (const name of names) {
  const job = await client.create("execution.job", { payload: { words: `words of ${name}` }, once: `count ${name}` });
  console.log(job.id);
}
