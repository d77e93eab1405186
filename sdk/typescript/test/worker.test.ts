/** Handlers run by a worker. Nothing here sleeps: tests wait for moments, with a deadline that only a fault reaches. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";

import { Client, Fail, isProblem, Refused, Retry, Worker, type Handler, type Reason, type WorkerOptions } from "onceward";

import { aborted, DEADLINE, Moment, Server, TASK, until } from "./serving.js";

/** A lease that is not to be lost: its hearts beat each second, and a machine that is busy for two of them loses nothing. */
const KEPT = 3_000;

let server: Server;
let client: Client;

before(async () => {
  server = await Server.begin();
  client = new Client({ url: server.url });
});
after(() => server.close());

/** Runs a worker while the test does its work; what it logged. */
async function working(handler: Handler<never>, test: (worker: Worker) => Promise<void>, options: WorkerOptions = {}): Promise<string[]> {
  const said: string[] = [];
  const log = (message: string): void => void said.push(message);
  const worker = new Worker({ url: server.url, wait: 5_000, grace: 5_000, log, ...options });
  worker.handle<never>(TASK, handler);
  const running = worker.run({ signals: false });
  try {
    await test(worker);
  } finally {
    worker.stop();
    await running;
  }
  return said;
}

describe("a worker", () => {
  it("commits what its handler returns", async () => {
    await working(
      (job) => ({ twice: (job.payload as number) * 2 }),
      async () => {
        const made = await client.create(TASK, { payload: 21 });
        await until(client, made.id, "done");
        assert.deepEqual((await client.effect(made.id)).result, { twice: 42 });
      },
    );
  });

  it("fetches a large payload", async () => {
    const text = "ä".repeat(100_000);
    await working(
      (job) => (job.payload as string).length,
      async () => {
        const made = await client.create(TASK, { payload: text });
        await until(client, made.id, "done");
        assert.equal((await client.effect(made.id)).result, text.length);
      },
    );
  });

  it("decodes a payload, or fails the job for good", async () => {
    const worker = new Worker({ url: server.url, wait: 5_000, log: () => {} });
    worker.handle(
      TASK,
      (job) => job.payload * 2,
      (payload: unknown): number => {
        if (typeof payload !== "number") throw new TypeError("no number");
        return payload;
      },
    );
    const running = worker.run({ signals: false });
    const [good, bad] = [await client.create(TASK, { payload: 21 }), await client.create(TASK, { payload: "x" })];
    await until(client, good.id, "done");
    assert.equal((await until(client, bad.id, "dead")).fields["code"], "BAD_PAYLOAD");
    assert.equal((await client.effect(good.id)).result, 42);
    worker.stop();
    await running;
  });

  it("runs several at a time", async () => {
    let here = 0;
    const all = new Moment();
    const meet = async (): Promise<void> => {
      here += 1;
      if (here === 4) all.set();
      await all.wait();
    };
    await working(
      meet,
      async () => {
        const made = await client.createMany(TASK, [{}, {}, {}, {}]);
        for (const each of made) if (!isProblem(each)) await until(client, each.id, "done");
      },
      { concurrency: 4 },
    );
  });

  it("has a retryable error tried again", async () => {
    await working(
      (job) => {
        if (job.attempt === 1) throw new Retry("BUSY", "not now", { after: 10 });
        return `attempt ${job.attempt}`;
      },
      async () => {
        const made = await client.create(TASK);
        const { fields } = await until(client, made.id, "done");
        assert.deepEqual([fields["failures"], fields["code"]], [1, "BUSY"]);
        assert.equal((await client.effect(made.id)).result, "attempt 2");
      },
    );
  });

  it("has a terminal error not tried again", async () => {
    await working(
      () => {
        throw new Fail("CORRUPT_DATA", "page 7");
      },
      async () => {
        const { attempt, fields } = await until(client, (await client.create(TASK)).id, "dead");
        assert.deepEqual([attempt, fields["code"], fields["message"]], [1, "CORRUPT_DATA", "page 7"]);
      },
    );
  });

  it("has any other error tried again", async () => {
    const said = await working(
      (job) => {
        if (job.attempt < 3) throw new RangeError("where is it?");
      },
      async () => {
        const { attempt, fields } = await until(client, (await client.create(TASK)).id, "done");
        assert.deepEqual([attempt, fields["code"], fields["message"]], [3, "EXCEPTION", "RangeError: where is it?"]);
      },
    );
    assert.equal(said.filter((line) => line.includes("its handler threw")).length, 2);
  });

  it("says how it begins and how it ends", async () => {
    const [running, goOn] = [new Moment(), new Moment()];
    let hanging = "";
    const said = await working(
      async (job) => {
        if (job.payload === "secret: fail") throw new Fail("NO");
        if (job.payload !== "secret: hang") return "secret: done";
        running.set();
        await goOn.wait();
        return undefined;
      },
      async () => {
        await until(client, (await client.create(TASK, { payload: "secret: go" })).id, "done");
        await until(client, (await client.create(TASK, { payload: "secret: fail" })).id, "dead");
        hanging = (await client.create(TASK, { payload: "secret: hang" })).id;
        await running.wait();
      },
      { name: "w", concurrency: 2, grace: 50 },
    );
    goOn.set();
    await client.fire(hanging, "drop");
    assert.deepEqual(said, [
      `w works on ${TASK} at ${server.url}, 2 jobs at a time`,
      "ending, as asked: what runs may finish within 0.05 s",
      "ended: 1 job committed, 1 failed, 1 given back",
    ]);
  });

  it("fails a job whose result is no JSON or too large", async () => {
    for (const [result, code] of [[{ big: 1n }, "BAD_RESULT"], ["x".repeat(2 << 20), "SIZE_EXCEEDED"]]) {
      await working(
        () => result,
        async () => {
          assert.equal((await until(client, (await client.create(TASK)).id, "dead")).fields["code"], code);
        },
      );
    }
  });

  it("commits first and tidies up after", async () => {
    await working(
      async (job) => {
        await job.commit("the effect");
        throw new Error("tidying up failed, which is no reason to do it all again");
      },
      async () => {
        const done = await until(client, (await client.create(TASK)).id, "done");
        assert.equal(done.attempt, 1);
        assert.equal((await client.effect(done.id)).result, "the effect");
      },
    );
  });

  it("stops a job that is to stop", async () => {
    const [running, reason] = [new Moment(), new Moment<Reason | undefined>()];
    await working(
      async (job) => {
        running.set();
        await aborted(job.signal);
        reason.set(job.reason);
        job.check();
      },
      async () => {
        const made = await client.create(TASK);
        await running.wait();
        await client.fire(made.id, "stop");
        assert.equal(await reason.wait(), "stop");
        assert.equal((await until(client, made.id, "dead")).fields["code"], "yielded");
      },
      { lease: KEPT },
    );
  });

  it("gives back what a handler that does not hear holds", async () => {
    const [running, goOn] = [new Moment(), new Moment()];
    await working(
      async () => {
        running.set();
        await goOn.wait();
        return "too late";
      },
      async () => {
        const made = await client.create(TASK);
        await running.wait();
        await client.fire(made.id, "stop");
        assert.equal((await until(client, made.id, "dead")).fields["code"], "yielded");
        goOn.set();
      },
      { lease: KEPT },
    );
  });

  it("drops a job that moved away", async () => {
    const [running, reason] = [new Moment(), new Moment<Reason | undefined>()];
    await working(
      async (job) => {
        running.set();
        await aborted(job.signal);
        reason.set(job.reason);
        return "nobody wants this";
      },
      async () => {
        const made = await client.create(TASK);
        await running.wait();
        await client.fire(made.id, "drop");
        assert.equal(await reason.wait(), "lease_lost");
        assert.equal((await client.get(made.id)).state, "dropped");
      },
      { lease: 300 },
    );
  });

  it("knows that its lease is gone when it is cut off", async () => {
    const own = await Server.begin();
    const client = new Client({ url: own.url });
    try {
      const [running, reason] = [new Moment(), new Moment<Reason | undefined>()];
      await working(
        async (job) => {
          if (job.attempt === 1) {
            running.set();
            await aborted(job.signal);
            reason.set(job.reason);
          }
          return job.attempt;
        },
        async () => {
          const made = await client.create(TASK);
          await running.wait();
          own.tell("SIGSTOP");
          assert.equal(await reason.wait(), "lease_lost");
          own.tell("SIGCONT");
          const done = await until(client, made.id, "done");
          assert.ok(done.attempt > 1);
          assert.equal((await client.effect(made.id)).result, done.attempt);
        },
        { client: new Client({ url: own.url, timeout: 500 }), lease: 500, wait: 1_000 },
      );
    } finally {
      await own.close();
    }
  });

  it("keeps a job that takes long by heartbeats", async () => {
    // Until another job, leased again and again for a third of that time, shows that its lease would have run out twice.
    const [running, goOn] = [new Moment(), new Moment()];
    await working(
      async (job) => {
        running.set();
        await goOn.wait();
        return job.attempt;
      },
      async () => {
        const made = await client.create(TASK);
        await running.wait();
        const other = await client.create(TASK);
        for (let attempt = 1; attempt <= 7; attempt += 1) {
          const [lease] = await client.lease([TASK], "loses it", { lease: KEPT / 3, wait: DEADLINE });
          assert.deepEqual([lease?.record.id, lease?.attempt], [other.id, attempt]);
        }
        await client.fire(other.id, "drop");
        goOn.set();
        await until(client, made.id, "done");
        assert.equal((await client.effect(made.id)).result, 1);
      },
      { lease: KEPT },
    );
  });

  it("lets its job finish when it is stopped", async () => {
    const [running, goOn] = [new Moment(), new Moment()];
    let made = "";
    await working(
      async (job) => {
        running.set();
        await goOn.wait();
        return job.reason;
      },
      async (worker) => {
        made = (await client.create(TASK)).id;
        await running.wait();
        worker.stop();
        goOn.set();
      },
    );
    assert.equal((await client.effect(made)).result, "shutdown");
  });

  it("gives back what it cannot finish when it is stopped", async () => {
    const [running, goOn] = [new Moment(), new Moment()];
    let made = "";
    await working(
      async () => {
        running.set();
        await goOn.wait();
      },
      async () => {
        made = (await client.create(TASK)).id;
        await running.wait();
      },
      { grace: 50 },
    );
    const back = await client.get(made);
    goOn.set();
    assert.deepEqual([back.state, back.fields["yields"], back.fields["failures"]], ["waiting", 1, 0]);
    await client.fire(made, "drop");
  });

  it("ends where its lifecycle is not there", async () => {
    const worker = new Worker({ url: server.url, log: () => {} });
    await assert.rejects(worker.run(), /nothing to do/);
    worker.handle("no.such", () => {});
    assert.throws(() => worker.handle("no.such", () => {}), /already/);
    await assert.rejects(worker.run({ signals: false }), (error) => error instanceof Refused && error.code === "no_such_lifecycle");
  });
});

describe("the examples, as users run them", () => {
  const examples = join(import.meta.dirname, "../examples");

  it("ends a worker cleanly on a signal", async () => {
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
      const made = await client.create("execution.job", { payload: { words: "one two three" } });
      const env = { ...process.env, ONCEWARD_URL: server.url };
      const child = spawn(process.execPath, [join(examples, "worker.js")], { env, stdio: "inherit" });
      try {
        const gone = once(child, "exit");
        await until(client, made.id, "SUCCEEDED");
        child.kill(signal);
        assert.deepEqual(await gone, [0, null]);
      } finally {
        child.kill("SIGKILL");
      }
      assert.deepEqual((await client.effect(made.id)).result, { count: 3 });
    }
  });

  it("makes jobs once", async () => {
    const env = { ...process.env, ONCEWARD_URL: server.url };
    const produce = (): Promise<{ stdout: string }> =>
      promisify(execFile)(process.execPath, [join(examples, "producer.js"), "invoice-7"], { env });
    const [first, again] = [await produce(), await produce()];
    assert.equal(first.stdout, again.stdout);
    assert.equal((await client.get(first.stdout.trim())).lifecycle, "execution.job");
  });
});
