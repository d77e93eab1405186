/** The server dies under load, again and again: nothing that it has acknowledged is lost, and no effect lands twice. */

import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { it } from "node:test";

import { Client, Worker } from "onceward";

import { DEADLINE, Moment, Server, TASK } from "./serving.js";

const [JOBS, KILLS, PRODUCERS] = [300, 3, 4];

it("loses nothing that was acknowledged, and lets no effect land twice", async () => {
  const seed = Number(process.env["ONCEWARD_SEED"] ?? randomInt(2 ** 32));
  console.log(`seed ${seed}`);
  // Killed when so many jobs have been acknowledged or worked on: whatever is under way then is hit.
  const kills = chances(seed, KILLS, 2 * JOBS);
  const reached = new Map(kills.map((at) => [at, new Moment()]));
  let steps = 0;
  const step = (): void => reached.get((steps += 1))?.set();
  const server = await Server.begin();
  try {
    const client = new Client({ url: server.url, timeout: 5_000, patience: DEADLINE });
    const worker = new Worker({ client: new Client({ url: server.url, timeout: 5_000 }), concurrency: 8, lease: 2_000, wait: 1_000, log: () => {} });
    worker.handle(TASK, (job) => {
      step();
      return job.payload;
    });
    const running = worker.run({ signals: false });
    const made = new Array<string>(JOBS);
    let next = 0;
    const produce = async (): Promise<void> => {
      for (let number = next++; number < JOBS; number = next++) {
        made[number] = (await client.create(TASK, { payload: number })).id;
        step();
      }
    };
    const producing = Promise.all(Array.from({ length: PRODUCERS }, produce));
    for (const at of kills) {
      await reached.get(at)?.wait();
      await server.kill();
      await server.start();
    }
    await producing;
    const [effects, ends] = [new Map<string, number>(), new Map<string, number>()];
    for await (const entry of client.stream({ after: 0, lifecycle: TASK, signal: AbortSignal.timeout(2 * DEADLINE) })) {
      if (entry["effect"]) count(effects, entry.record);
      if (entry.state === "done") count(ends, entry.record);
      if (ends.size === JOBS) break;
    }
    worker.stop();
    await running;
    const each = new Map(made.map((record) => [record, 1]));
    assert.equal(each.size, JOBS);
    const found = new Set<string>();
    for await (const record of client.records(TASK)) found.add(record.id);
    assert.deepEqual(found, new Set(made), `seed ${seed}`);
    assert.deepEqual(sorted(effects), sorted(each), `seed ${seed}`);
    assert.deepEqual(sorted(ends), sorted(each), `seed ${seed}`);
    for (const [number, record] of made.entries()) assert.equal((await client.effect(record)).result, number, `seed ${seed}`);
    await server.verify();
  } finally {
    await server.close();
  }
});

function count(counts: Map<string, number>, record: string | null | undefined): void {
  if (record) counts.set(record, (counts.get(record) ?? 0) + 1);
}

function sorted(counts: Map<string, number>): [string, number][] {
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Different whole numbers from 1 on, in order; the same for the same seed. */
function chances(seed: number, many: number, below: number): number[] {
  const found = new Set<number>();
  for (let state = seed >>> 0; found.size < many; ) {
    // A linear congruential generator will do for this.
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    found.add(1 + Math.floor((state / 2 ** 32) * (below - 1)));
  }
  return [...found].sort((a, b) => a - b);
}
