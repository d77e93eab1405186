/** Responses that a server gives rarely: full, failing, late, lost. A proxy gives them at the right moment. */

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";

import { Client, isProblem, TerminalFailure, Worker, type Handler, type StopReason, type WorkerConfig } from "onceward";

import { FaultProxy, leasedJobs, problemResponse, type ProxyRequest, type ProxyResponse, type Responder } from "./proxy.js";
import { OneShotEvent, ServerProcess, TASK, waitForAbort, waitForState } from "./server_process.js";

let server: ServerProcess;
let client: Client;

/** Longer than any test, in milliseconds: a lease of this length does not expire and needs no heartbeat. */
const ONE_HOUR = 3_600_000;

before(async () => {
  server = await ServerProcess.launch();
  client = new Client({ url: server.url });
});
after(() => server.close());

const forward: Responder = (request) => request.forward();

/** Runs a worker behind a proxy during the test. Returns its log lines. */
async function runWorker(
  respond: Responder,
  handler: Handler<never>,
  test: (worker: Worker) => Promise<void>,
  options: WorkerConfig = {},
): Promise<string[]> {
  const logLines: string[] = [];
  const proxy = await FaultProxy.start(server.url, respond);
  const log = (message: string): void => void logLines.push(message);
  const worker = new Worker({ url: proxy.url, maxWait: 5_000, shutdownGrace: 5_000, log, ...options });
  worker.handle<never>(TASK, handler);
  const running = worker.run({ signals: false });
  try {
    await Promise.race([test(worker), running]);
  } finally {
    worker.stop();
    await running;
    proxy.close();
  }
  return logLines;
}

/** Forwards requests and sets the remaining lease of the first job. */
function withRemainingLease(milliseconds: number): (request: ProxyRequest) => Promise<ProxyResponse> {
  let isChanged = false;
  return async (request) => {
    const response = await request.forward();
    if (isChanged || !request.isLease) return response;
    const [first, ...rest] = leasedJobs(response);
    if (first === undefined) return response;
    isChanged = true;
    return { ...response, body: JSON.stringify({ executions: [{ ...first, expires_in_ms: milliseconds }, ...rest] }) };
  };
}

describe("temporary errors", () => {
  it("a call is retried after temporary errors", async () => {
    const responses = [
      problemResponse(507, "store_full"),
      problemResponse(503, "overloaded"),
      problemResponse(429, "too_fast", { retry_after_ms: 1 }),
    ];
    const proxy = await FaultProxy.start(server.url, (request) => responses.pop() ?? request.forward());
    try {
      const created = await new Client({ url: proxy.url }).create(TASK, { fields: { name: "created at last" } });
      assert.equal(created.state, "waiting");
      assert.equal(responses.length, 0);
    } finally {
      proxy.close();
    }
    for await (const { id } of client.records(TASK, { state: "waiting" })) await client.fire(id, "drop");
  });

  it("retryable statuses are those of the Rust worker", async () => {
    const callsOfStatus = new Map([400, 409, 429, 500, 501, 502, 503, 504, 505, 507, 529].map((status) => [status, 0]));
    for (const status of callsOfStatus.keys()) {
      const proxy = await FaultProxy.start("", () => {
        const calls = (callsOfStatus.get(status) ?? 0) + 1;
        callsOfStatus.set(status, calls);
        return calls === 1 ? problemResponse(status, "any") : { status: 200, body: "{}" };
      });
      await new Client({ url: proxy.url }).get("any").catch(() => undefined);
      proxy.close();
    }
    const retried = [...callsOfStatus].filter(([, calls]) => calls > 1).map(([status]) => status);
    assert.deepEqual(retried, [429, 502, 503, 504, 507]);
  });

  it("a worker continues after failed lease calls", async () => {
    const responses = [problemResponse(501, "http_501"), problemResponse(507, "store_full"), problemResponse(500, "internal")];
    const lines = await runWorker(
      (request) => (request.isLease ? responses.pop() : undefined) ?? request.forward(),
      () => "done",
      async () => void (await waitForState(client, (await client.create(TASK)).id, "done")),
    );
    assert.equal(responses.length, 0);
    assert.equal(lines.filter((line) => line.startsWith("lease call failed")).length, 1);
    assert.equal(lines.filter((line) => line === "the server is available again").length, 1);
  });

  it("a payload with a wrong hash does not reach the handler", async () => {
    let remainingCorruptions = 2;
    const respond: Responder = async (request) => {
      const response = await request.forward();
      if (!request.path.endsWith("/payload") || remainingCorruptions === 0) return response;
      remainingCorruptions -= 1;
      return { ...response, body: response.body.replace("x", "y") };
    };
    const text = "x".repeat(100_000);
    await runWorker(
      respond,
      (job) => job.payload === text,
      async () => {
        const created = await client.create(TASK, { payload: text });
        assert.equal((await waitForState(client, created.id, "done")).attempt, 2);
        assert.equal((await client.effect(created.id)).result, true);
      },
    );
  });

  it("a temporarily unavailable payload yields the job", async () => {
    let downloads = 0;
    const respond: Responder = async (request) => {
      if (!request.path.endsWith("/payload")) return request.forward();
      downloads += 1;
      return downloads > 1 ? request.forward() : problemResponse(503, "overloaded");
    };
    const text = "x".repeat(100_000);
    const proxy = await FaultProxy.start(server.url, respond);
    const retryPolicy = { retryTimeout: 0 };
    const worker = new Worker({ url: proxy.url, maxWait: 5_000, shutdownGrace: 5_000, retryPolicy, log: () => undefined });
    worker.handle<never>("execution.job", (job) => job.payload === text);
    const running = worker.run({ signals: false });
    try {
      const created = await client.create("execution.job", { payload: text, fields: { budget: 1 } });
      // Yielded once, with a budget of one.
      assert.deepEqual([(await waitForState(client, created.id, "SUCCEEDED")).attempt, downloads], [2, 2]);
      assert.equal((await client.effect(created.id)).result, true);
    } finally {
      worker.stop();
      await running;
      proxy.close();
    }
  });

  it("a missing payload fails the job", async () => {
    const responses = [problemResponse(404, "not_found"), problemResponse(404, "not_found")];
    await runWorker(
      (request) => (request.path.endsWith("/payload") ? responses.pop() : undefined) ?? request.forward(),
      (job) => (job.payload as string).length,
      async () => {
        const created = await client.create(TASK, { payload: "x".repeat(100_000) });
        const done = await waitForState(client, created.id, "done");
        assert.deepEqual([done.attempt, done.fields["code"]], [3, "PAYLOAD_UNAVAILABLE"]);
      },
    );
  });

  it("a temporarily failing heartbeat keeps the lease", async () => {
    const [responses, heartbeatSent] = [[problemResponse(507, "store_full"), problemResponse(500, "internal")], new OneShotEvent()];
    const respond: Responder = async (request) => {
      if (!request.isHeartbeat) return request.forward();
      const fault = responses.pop();
      if (fault !== undefined) return fault;
      const response = await request.forward();
      heartbeatSent.set();
      return response;
    };
    await runWorker(
      respond,
      async (job) => {
        await heartbeatSent.wait();
        return job.stopReason ?? "no reason";
      },
      async () => {
        const created = await client.create(TASK);
        assert.equal((await waitForState(client, created.id, "done")).attempt, 1);
        assert.equal((await client.effect(created.id)).result, "no reason");
      },
      { lease: 3_000 },
    );
  });

  it("a temporarily failing commit is retried", async () => {
    const responses = [problemResponse(507, "store_full"), problemResponse(503, "overloaded"), undefined];
    await runWorker(
      (request) => (request.path.endsWith("/commit") && responses.length > 0 ? responses.pop() : request.forward()),
      () => "committed",
      async () => {
        const created = await client.create(TASK);
        assert.equal((await waitForState(client, created.id, "done")).attempt, 1);
        assert.equal((await client.effect(created.id)).result, "committed");
      },
    );
    assert.equal(responses.length, 0);
  });

  it("a commit with an internal error fails the job", async () => {
    await runWorker(
      (request) => (request.path.endsWith(".1/commit") ? problemResponse(500, "internal") : request.forward()),
      (job) => job.attempt,
      async () => {
        const { id, fields } = await waitForState(client, (await client.create(TASK)).id, "done");
        assert.deepEqual([fields["failures"], fields["code"]], [1, "internal"]);
        assert.equal((await client.effect(id)).result, 2);
      },
      { lease: ONE_HOUR },
    );
  });
});

describe("leases that are older than their response", () => {
  it("jobs of a lost response start after a heartbeat", async () => {
    const order: string[] = [];
    let lost = false;
    const respond: Responder = async (request) => {
      const response = await request.forward();
      if (request.isHeartbeat) order.push("heartbeat");
      if (!request.isLease || lost || leasedJobs(response).length === 0) return response;
      lost = true;
      return undefined;
    };
    await runWorker(
      respond,
      () => void order.push("handler"),
      async () => void (await waitForState(client, (await client.create(TASK)).id, "done")),
      { lease: ONE_HOUR },
    );
    assert.deepEqual(order, ["heartbeat", "handler"]);
  });

  it("dropped jobs of a lost response are not started", async () => {
    const [started, lost]: [string[], OneShotEvent] = [[], new OneShotEvent()];
    let stale: ProxyResponse | undefined;
    let first = true;
    const respond: Responder = async (request) => {
      const found = stale;
      if (request.isLease && found !== undefined) {
        stale = undefined;
        return found;
      }
      const response = await request.forward();
      const [job] = request.isLease && first ? leasedJobs(response) : [];
      if (job === undefined) return response;
      first = false;
      await client.fire(job.record.id, "drop");
      lost.set();
      // Repeat this response although the record was dropped since.
      stale = response;
      return undefined;
    };
    await runWorker(
      respond,
      (job) => void started.push(job.id),
      async () => {
        const dropped = await client.create(TASK);
        await lost.wait();
        const other = await client.create(TASK);
        await waitForState(client, other.id, "done");
        assert.deepEqual([(await client.get(dropped.id)).state, started], ["dropped", [other.id]]);
      },
      { lease: ONE_HOUR },
    );
  });

  it("a job with an expired lease is not started", async () => {
    const started: number[] = [];
    await runWorker(
      withRemainingLease(0),
      (job) => void started.push(job.attempt),
      async () => void (await waitForState(client, (await client.create(TASK)).id, "done")),
      { lease: 1_000 },
    );
    assert.deepEqual(started, [2]);
  });

  it("the first heartbeat depends on the remaining lease", async () => {
    const [heartbeatSent, respond] = [new OneShotEvent(), withRemainingLease(900)];
    await runWorker(
      async (request) => {
        const response = await respond(request);
        if (request.isHeartbeat) heartbeatSent.set();
        return response;
      },
      () => heartbeatSent.wait(),
      async () => void (await waitForState(client, (await client.create(TASK)).id, "done")),
      { lease: ONE_HOUR },
    );
  });
});

describe("delays", () => {
  for (const [members, maxHeartbeats] of [[{}, 9], [{ retry_after_ms: 60_000 }, 4]] as const) {
    it(`failing heartbeats are retried with backoff, with ${JSON.stringify(members)}`, async () => {
      let heartbeats = 0;
      const counted = new OneShotEvent<[number, StopReason | undefined]>();
      await runWorker(
        (request) => {
          if (!request.isHeartbeat) return request.forward();
          heartbeats += 1;
          return problemResponse(503, "overloaded", members);
        },
        async (job) => {
          if (job.attempt > 1) return;
          await waitForAbort(job.signal);
          counted.set([heartbeats, job.stopReason]);
        },
        async () => {
          const created = await client.create(TASK);
          const [count, reason] = await counted.wait();
          assert.equal(reason, "lease_lost");
          assert.ok(count >= 2 && count <= maxHeartbeats, `${count} heartbeats`);
          await waitForState(client, created.id, "done");
        },
        { lease: 1_500 },
      );
    });
  }

  it("heartbeats of all jobs share one request", async () => {
    const [heartbeatSent, release] = [new OneShotEvent<number>(), new OneShotEvent()];
    const created = await client.createBatch(TASK, Array.from({ length: 20 }, () => ({})));
    await runWorker(
      (request) => {
        if (request.isHeartbeat) heartbeatSent.set(request.batchedHeartbeats);
        return request.forward();
      },
      () => release.wait(),
      async () => {
        assert.equal(await heartbeatSent.wait(), 20);
        release.set();
        for (const record of created) {
          assert.ok(!isProblem(record));
          await waitForState(client, record.id, "done");
        }
      },
      { lease: 6_000, concurrency: 20 },
    );
  });

  it("the Retry-After header delays the next lease call", async () => {
    const calls: number[] = [];
    await runWorker(
      (request) => {
        if (request.isLease) calls.push(performance.now());
        return calls.length === 1 ? { status: 503, body: "busy", headers: { "retry-after": "1" } } : request.forward();
      },
      () => {},
      async () => void (await waitForState(client, (await client.create(TASK)).id, "done")),
    );
    const [first = 0, second = 0] = calls;
    assert.ok(second - first >= 1_000, `${second - first} ms`);
  });
});

describe("reports that the server rejects", () => {
  it("a too deeply nested result fails the job", async () => {
    let deep: unknown[] = [];
    for (let depth = 0; depth < 200; depth += 1) deep = [deep];
    const handlers: Handler<never>[] = [() => deep, (job) => job.commit(deep)];
    for (const handler of handlers) {
      await runWorker(
        forward,
        handler,
        async () => {
          const dead = await waitForState(client, (await client.create(TASK)).id, "dead");
          assert.deepEqual([dead.attempt, dead.fields["code"]], [1, "BAD_RESULT"]);
        },
        { lease: ONE_HOUR },
      );
    }
  });

  it("a failure message with surrogates is sanitized", async () => {
    const cases = [
      ["half an emoji: \ud83d", "half an emoji: \ufffd"],
      // The limit of 500 UTF-16 units would cut a surrogate pair.
      [`x${"😀".repeat(600)}`, `x${"😀".repeat(499)}`],
    ];
    for (const [message, expected] of cases) {
      await runWorker(
        forward,
        () => {
          throw new TerminalFailure("BROKEN", message);
        },
        async () => {
          const { fields } = await waitForState(client, (await client.create(TASK)).id, "dead");
          assert.deepEqual([fields["code"], fields["message"]], ["BROKEN", expected]);
        },
        { lease: ONE_HOUR },
      );
    }
  });

  it("a rejected failure message is replaced", async () => {
    const responses = [problemResponse(422, "invalid_input")];
    await runWorker(
      (request) => (request.path.endsWith("/fail") ? responses.pop() : undefined) ?? request.forward(),
      () => {
        throw new TerminalFailure("BROKEN", "rejected text");
      },
      async () => {
        const dead = await waitForState(client, (await client.create(TASK)).id, "dead");
        assert.deepEqual([dead.attempt, dead.fields["code"]], [1, "BROKEN"]);
        assert.doesNotMatch(String(dead.fields["message"]), /rejected text/);
      },
      { lease: ONE_HOUR },
    );
  });
});

describe("concurrency and shutdown", () => {
  it("a high concurrency leases in several calls", async () => {
    const requestedMax: number[] = [];
    await runWorker(
      (request) => {
        if (request.isLease) requestedMax.push((JSON.parse(request.body) as { max: number }).max);
        return request.forward();
      },
      () => {},
      async () => void (await waitForState(client, (await client.create(TASK)).id, "done")),
      { concurrency: 1_001 },
    );
    assert.ok((requestedMax[0] ?? Infinity) <= 1_000);
  });

  it("jobs leased during a stop are yielded in parallel", async () => {
    const [leased, stopped, allYielding] = [new OneShotEvent(), new OneShotEvent(), new OneShotEvent()];
    let [isFirst, yielding] = [true, 0];
    const respond: Responder = async (request) => {
      if (request.path.endsWith("/yield")) {
        yielding += 1;
        if (yielding === 3) allYielding.set();
        await allYielding.wait();
      }
      const response = await request.forward();
      if (request.isLease && isFirst && leasedJobs(response).length > 0) {
        isFirst = false;
        leased.set();
        await stopped.wait();
      }
      return response;
    };
    const created = await client.createBatch(TASK, [{}, {}, {}]);
    await runWorker(
      respond,
      () => {},
      async (worker) => {
        await leased.wait();
        worker.stop();
        stopped.set();
      },
      { concurrency: 3 },
    );
    for (const record of created) {
      assert.ok(!isProblem(record));
      const yielded = await client.get(record.id);
      assert.deepEqual([yielded.state, yielded.fields["yields"]], ["waiting", 1]);
      await client.fire(record.id, "drop");
    }
  });
});
