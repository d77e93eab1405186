/** Handlers run by a worker. The tests do not sleep: they wait for events, with a timeout that only a failing test reaches. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";

import {
  Client,
  isProblem,
  RefusedError,
  RetryableFailure,
  TerminalFailure,
  Worker,
  type Handler,
  type StopReason,
  type WorkerConfig,
} from "onceward";

import { OneShotEvent, ServerProcess, TASK, TEST_TIMEOUT, waitForAbort, waitForState } from "./server_process.js";

/** For leases that must not expire, in milliseconds. With a heartbeat each second, they survive two missed ones on a busy machine. */
const SAFE_LEASE = 3_000;

let server: ServerProcess;
let client: Client;

before(async () => {
  server = await ServerProcess.launch();
  client = new Client({ url: server.url });
});
after(() => server.close());

/** Runs a worker during the test. Returns its log lines. */
async function runWorker(handler: Handler<never>, test: (worker: Worker) => Promise<void>, options: WorkerConfig = {}): Promise<string[]> {
  const logLines: string[] = [];
  const log = (message: string): void => void logLines.push(message);
  const worker = new Worker({ url: server.url, maxWait: 5_000, shutdownGrace: 5_000, log, ...options });
  worker.handle<never>(TASK, handler);
  const running = worker.run({ signals: false });
  try {
    await test(worker);
  } finally {
    worker.stop();
    await running;
  }
  return logLines;
}

describe("a worker", () => {
  it("commits the return value of its handler", async () => {
    await runWorker(
      (job) => ({ twice: (job.payload as number) * 2 }),
      async () => {
        const created = await client.create(TASK, { payload: 21 });
        await waitForState(client, created.id, "done");
        assert.deepEqual((await client.effect(created.id)).result, { twice: 42 });
      },
    );
  });

  it("downloads a large payload", async () => {
    const text = "ä".repeat(100_000);
    await runWorker(
      (job) => (job.payload as string).length,
      async () => {
        const created = await client.create(TASK, { payload: text });
        await waitForState(client, created.id, "done");
        assert.equal((await client.effect(created.id)).result, text.length);
      },
    );
  });

  it("decodes a payload, or fails the job without retries", async () => {
    const worker = new Worker({ url: server.url, maxWait: 5_000, log: () => {} });
    worker.handle(
      TASK,
      (job) => job.payload * 2,
      (payload: unknown): number => {
        if (typeof payload !== "number") throw new TypeError("not a number");
        return payload;
      },
    );
    const running = worker.run({ signals: false });
    const [good, bad] = [await client.create(TASK, { payload: 21 }), await client.create(TASK, { payload: "x" })];
    await waitForState(client, good.id, "done");
    assert.equal((await waitForState(client, bad.id, "dead")).fields["code"], "BAD_PAYLOAD");
    assert.equal((await client.effect(good.id)).result, 42);
    worker.stop();
    await running;
  });

  it("fails a job alone whose payload JavaScript cannot parse", async () => {
    const digits = "1".repeat(5_000);
    const createRaw = async (payload: string): Promise<string> => {
      const [headers, body] = [{ "content-type": "application/json" }, `{"payload":${payload}}`];
      const response = await fetch(`${server.url}/v1/lifecycles/${TASK}/records`, { method: "POST", headers, body });
      return ((await response.json()) as { id: string }).id;
    };
    // In one lease answer, and as a large payload that is downloaded.
    const bad = [await createRaw(`{"n":${digits}}`), await createRaw(`["${"x".repeat(100_000)}",${digits}]`)];
    const good = await client.create(TASK, { payload: { n: 21 } });
    const started: string[] = [];
    const double: Handler<{ n: number }> = (job) => {
      started.push(job.id);
      return job.payload.n * 2;
    };
    await runWorker(
      double,
      async () => {
        await waitForState(client, good.id, "done");
        for (const id of bad) assert.equal((await waitForState(client, id, "dead")).fields["code"], "BAD_PAYLOAD");
      },
      { concurrency: 3 },
    );
    assert.deepEqual(started, [good.id]);
    assert.equal((await client.effect(good.id)).result, 42);
  });

  it("runs jobs concurrently", async () => {
    let arrived = 0;
    const allArrived = new OneShotEvent();
    const waitForOthers = async (): Promise<void> => {
      arrived += 1;
      if (arrived === 4) allArrived.set();
      await allArrived.wait();
    };
    await runWorker(
      waitForOthers,
      async () => {
        const created = await client.createBatch(TASK, [{}, {}, {}, {}]);
        for (const record of created) if (!isProblem(record)) await waitForState(client, record.id, "done");
      },
      { concurrency: 4 },
    );
  });

  it("retries a retryable failure", async () => {
    await runWorker(
      (job) => {
        if (job.attempt === 1) throw new RetryableFailure("BUSY", "not now", { retryAfter: 10 });
        return `attempt ${job.attempt}`;
      },
      async () => {
        const created = await client.create(TASK);
        const { fields } = await waitForState(client, created.id, "done");
        assert.deepEqual([fields["failures"], fields["code"]], [1, "BUSY"]);
        assert.equal((await client.effect(created.id)).result, "attempt 2");
      },
    );
  });

  it("does not retry a terminal failure", async () => {
    await runWorker(
      () => {
        throw new TerminalFailure("CORRUPT_DATA", "page 7");
      },
      async () => {
        const { attempt, fields } = await waitForState(client, (await client.create(TASK)).id, "dead");
        assert.deepEqual([attempt, fields["code"], fields["message"]], [1, "CORRUPT_DATA", "page 7"]);
      },
    );
  });

  it("retries any other error", async () => {
    const logLines = await runWorker(
      (job) => {
        if (job.attempt < 3) throw new RangeError("where is it?");
      },
      async () => {
        const { attempt, fields } = await waitForState(client, (await client.create(TASK)).id, "done");
        assert.deepEqual([attempt, fields["code"], fields["message"]], [3, "EXCEPTION", "RangeError: where is it?"]);
      },
    );
    assert.equal(logLines.filter((line) => line.includes("handler threw an error")).length, 2);
  });

  it("logs start and end without payloads", async () => {
    const [running, release] = [new OneShotEvent(), new OneShotEvent()];
    let hanging = "";
    const logLines = await runWorker(
      async (job) => {
        if (job.payload === "secret: fail") throw new TerminalFailure("NO");
        if (job.payload !== "secret: hang") return "secret: done";
        running.set();
        await release.wait();
        return undefined;
      },
      async () => {
        await waitForState(client, (await client.create(TASK, { payload: "secret: go" })).id, "done");
        await waitForState(client, (await client.create(TASK, { payload: "secret: fail" })).id, "dead");
        hanging = (await client.create(TASK, { payload: "secret: hang" })).id;
        await running.wait();
      },
      { name: "w", concurrency: 2, shutdownGrace: 50 },
    );
    release.set();
    await client.fire(hanging, "drop");
    assert.deepEqual(logLines, [
      `worker w started: lifecycles ${TASK}, server ${server.url}, concurrency 2`,
      "worker is stopping (stop was called): running jobs have 0.05 s to finish",
      "worker stopped: 1 job committed, 1 failed, 1 yielded",
    ]);
  });

  it("fails a job whose result is not JSON or too large", async () => {
    for (const [result, code] of [[{ big: 1n }, "BAD_RESULT"], ["x".repeat(2 << 20), "SIZE_EXCEEDED"]]) {
      await runWorker(
        () => result,
        async () => {
          assert.equal((await waitForState(client, (await client.create(TASK)).id, "dead")).fields["code"], code);
        },
      );
    }
  });

  it("does not repeat a job that fails after its commit", async () => {
    await runWorker(
      async (job) => {
        await job.commit("the effect");
        throw new Error("the cleanup failed");
      },
      async () => {
        const done = await waitForState(client, (await client.create(TASK)).id, "done");
        assert.equal(done.attempt, 1);
        assert.equal((await client.effect(done.id)).result, "the effect");
      },
    );
  });

  it("passes a stop request to the handler", async () => {
    const [running, reason] = [new OneShotEvent(), new OneShotEvent<StopReason | undefined>()];
    await runWorker(
      async (job) => {
        running.set();
        await waitForAbort(job.signal);
        reason.set(job.stopReason);
        job.throwIfStopping();
      },
      async () => {
        const created = await client.create(TASK);
        await running.wait();
        await client.fire(created.id, "stop");
        assert.equal(await reason.wait(), "stop");
        assert.equal((await waitForState(client, created.id, "dead")).fields["code"], "yielded");
      },
      { lease: SAFE_LEASE },
    );
  });

  it("yields the job of a handler that ignores a stop request", async () => {
    const [running, release] = [new OneShotEvent(), new OneShotEvent()];
    await runWorker(
      async () => {
        running.set();
        await release.wait();
        return "too late";
      },
      async () => {
        const created = await client.create(TASK);
        await running.wait();
        await client.fire(created.id, "stop");
        assert.equal((await waitForState(client, created.id, "dead")).fields["code"], "yielded");
        release.set();
      },
      { lease: SAFE_LEASE },
    );
  });

  it("stops the job of a dropped record", async () => {
    const [running, reason] = [new OneShotEvent(), new OneShotEvent<StopReason | undefined>()];
    await runWorker(
      async (job) => {
        running.set();
        await waitForAbort(job.signal);
        reason.set(job.stopReason);
        return "discarded";
      },
      async () => {
        const created = await client.create(TASK);
        await running.wait();
        await client.fire(created.id, "drop");
        assert.equal(await reason.wait(), "lease_lost");
        assert.equal((await client.get(created.id)).state, "dropped");
      },
      { lease: 300 },
    );
  });

  it("stops a job whose lease expires without an answer", async () => {
    const ownServer = await ServerProcess.launch();
    const client = new Client({ url: ownServer.url });
    try {
      const [running, reason] = [new OneShotEvent(), new OneShotEvent<StopReason | undefined>()];
      await runWorker(
        async (job) => {
          if (job.attempt === 1) {
            running.set();
            await waitForAbort(job.signal);
            reason.set(job.stopReason);
          }
          return job.attempt;
        },
        async () => {
          const created = await client.create(TASK);
          await running.wait();
          ownServer.sendSignal("SIGSTOP");
          assert.equal(await reason.wait(), "lease_lost");
          ownServer.sendSignal("SIGCONT");
          const done = await waitForState(client, created.id, "done");
          assert.ok(done.attempt > 1);
          assert.equal((await client.effect(created.id)).result, done.attempt);
        },
        { client: new Client({ url: ownServer.url, retryPolicy: { responseTimeout: 500 } }), lease: 500, maxWait: 1_000 },
      );
    } finally {
      await ownServer.close();
    }
  });

  it("keeps the lease of a long job with heartbeats", async () => {
    // Another job, leased seven times for a third of the lease each, shows that the lease would have expired twice.
    const [running, release] = [new OneShotEvent(), new OneShotEvent()];
    await runWorker(
      async (job) => {
        running.set();
        await release.wait();
        return job.attempt;
      },
      async () => {
        const created = await client.create(TASK);
        await running.wait();
        const other = await client.create(TASK);
        for (let attempt = 1; attempt <= 7; attempt += 1) {
          const [lease] = await client.lease([TASK], "lets leases expire", { lease: SAFE_LEASE / 3, maxWait: TEST_TIMEOUT });
          assert.deepEqual([lease?.record.id, lease?.attempt], [other.id, attempt]);
        }
        await client.fire(other.id, "drop");
        release.set();
        await waitForState(client, created.id, "done");
        assert.equal((await client.effect(created.id)).result, 1);
      },
      { lease: SAFE_LEASE },
    );
  });

  it("lets a running job finish when it is stopped", async () => {
    const [running, release] = [new OneShotEvent(), new OneShotEvent()];
    let created = "";
    await runWorker(
      async (job) => {
        running.set();
        await release.wait();
        return job.stopReason;
      },
      async (worker) => {
        created = (await client.create(TASK)).id;
        await running.wait();
        worker.stop();
        release.set();
      },
    );
    assert.equal((await client.effect(created)).result, "shutdown");
  });

  it("yields a job that still runs after the grace period", async () => {
    const [running, release] = [new OneShotEvent(), new OneShotEvent()];
    let created = "";
    await runWorker(
      async () => {
        running.set();
        await release.wait();
      },
      async () => {
        created = (await client.create(TASK)).id;
        await running.wait();
      },
      { shutdownGrace: 50 },
    );
    const yielded = await client.get(created);
    release.set();
    assert.deepEqual([yielded.state, yielded.fields["yields"], yielded.fields["failures"]], ["waiting", 1, 0]);
    await client.fire(created, "drop");
  });

  it("ends if a lifecycle does not exist, and rejects missing or duplicate handlers", async () => {
    const worker = new Worker({ url: server.url, log: () => {} });
    await assert.rejects(worker.run(), /has no handler/);
    worker.handle("no.such", () => {});
    assert.throws(() => worker.handle("no.such", () => {}), /already/);
    await assert.rejects(worker.run({ signals: false }), (error) => error instanceof RefusedError && error.code === "unknown_lifecycle");
  });
});

describe("the examples", () => {
  const examples = join(import.meta.dirname, "../examples");

  it("the worker ends with status zero after a shutdown signal", async () => {
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
      const created = await client.create("execution.job", { payload: { words: "one two three" } });
      const env = { ...process.env, ONCEWARD_URL: server.url };
      const child = spawn(process.execPath, [join(examples, "worker.js")], { env, stdio: "inherit" });
      try {
        const exited = once(child, "exit");
        await waitForState(client, created.id, "SUCCEEDED");
        child.kill(signal);
        assert.deepEqual(await exited, [0, null]);
      } finally {
        child.kill("SIGKILL");
      }
      assert.deepEqual((await client.effect(created.id)).result, { count: 3 });
    }
  });

  it("a repeated producer creates no second job", async () => {
    const env = { ...process.env, ONCEWARD_URL: server.url };
    const produce = (): Promise<{ stdout: string }> =>
      promisify(execFile)(process.execPath, [join(examples, "producer.js"), "invoice-7"], { env });
    const [first, repeated] = [await produce(), await produce()];
    assert.equal(first.stdout, repeated.stdout);
    assert.equal((await client.get(first.stdout.trim())).lifecycle, "execution.job");
  });
});
