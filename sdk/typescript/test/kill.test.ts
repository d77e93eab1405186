/** Kills the server under load: no acknowledged job is lost, and no effect is committed twice. */

import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { it } from "node:test";

import { Client, Worker } from "onceward";

import { OneShotEvent, ServerProcess, TASK, TEST_TIMEOUT } from "./server_process.js";

const [JOBS, KILLS, PRODUCERS] = [300, 3, 4];

it("a killed server loses no acknowledged job and commits each effect once", async () => {
  const seed = Number(process.env["ONCEWARD_SEED"] ?? randomInt(2 ** 32));
  console.log(`seed ${seed}`);
  // A step is an acknowledged create or a started handler. Kills at random steps hit all kinds of requests in flight.
  const killSteps = randomSteps(seed, KILLS, 2 * JOBS);
  const reached = new Map(killSteps.map((step) => [step, new OneShotEvent()]));
  let steps = 0;
  const countStep = (): void => reached.get((steps += 1))?.set();
  const server = await ServerProcess.launch();
  try {
    const client = new Client({ url: server.url, retryPolicy: { responseTimeout: 5_000, retryTimeout: TEST_TIMEOUT } });
    const workerClient = new Client({ url: server.url, retryPolicy: { responseTimeout: 5_000 } });
    const worker = new Worker({ client: workerClient, concurrency: 8, lease: 2_000, maxWait: 1_000, log: () => {} });
    worker.handle(TASK, (job) => {
      countStep();
      return job.payload;
    });
    const running = worker.run({ signals: false });
    const created = new Array<string>(JOBS);
    let next = 0;
    const produce = async (): Promise<void> => {
      for (let number = next++; number < JOBS; number = next++) {
        created[number] = (await client.create(TASK, { payload: number })).id;
        countStep();
      }
    };
    const producing = Promise.all(Array.from({ length: PRODUCERS }, produce));
    for (const step of killSteps) {
      await reached.get(step)?.wait();
      await server.kill();
      await server.start();
    }
    await producing;
    const [effects, ends] = [new Map<string, number>(), new Map<string, number>()];
    for await (const entry of client.stream({ after: 0, lifecycle: TASK, signal: AbortSignal.timeout(2 * TEST_TIMEOUT) })) {
      if (entry["effect"]) count(effects, entry.record);
      if (entry.state === "done") count(ends, entry.record);
      if (ends.size === JOBS) break;
    }
    worker.stop();
    await running;
    const onceEach = new Map(created.map((record) => [record, 1]));
    assert.equal(onceEach.size, JOBS);
    const found = new Set<string>();
    for await (const record of client.records(TASK)) found.add(record.id);
    assert.deepEqual(found, new Set(created), `seed ${seed}`);
    assert.deepEqual(sorted(effects), sorted(onceEach), `seed ${seed}`);
    assert.deepEqual(sorted(ends), sorted(onceEach), `seed ${seed}`);
    for (const [number, record] of created.entries()) assert.equal((await client.effect(record)).result, number, `seed ${seed}`);
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

/** Returns `count` different whole numbers from 1 to `limit` - 1, in order. The same seed gives the same numbers. */
function randomSteps(seed: number, count: number, limit: number): number[] {
  const steps = new Set<number>();
  for (let state = seed >>> 0; steps.size < count; ) {
    // A linear congruential generator is random enough for kill steps.
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    steps.add(1 + Math.floor((state / 2 ** 32) * (limit - 1)));
  }
  return [...steps].sort((a, b) => a - b);
}
