/** Calls of producers, queries, streams, and the calls of a worker. */

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";

import {
  AlreadyCommittedError,
  Client,
  isProblem,
  LeaseLostError,
  RefusedError,
  RetryableFailure,
  TerminalFailure,
  UnreachableError,
  type LeasedJob,
  type LogEntry,
} from "onceward";

import { ServerProcess, TASK, TEST_TIMEOUT } from "./server_process.js";

let server: ServerProcess;
let client: Client;

before(async () => {
  server = await ServerProcess.launch();
  client = new Client({ url: server.url });
});
after(() => server.close());

async function expectRefusal(call: Promise<unknown>): Promise<RefusedError> {
  const error: unknown = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  assert.ok(error instanceof RefusedError, `expected a refusal, got ${String(error)}`);
  return error;
}

async function leaseOne(lifecycle: string, options: Parameters<Client["lease"]>[2] = {}): Promise<LeasedJob> {
  const [leased] = await client.lease([lifecycle], "by hand", options);
  assert.ok(leased);
  return leased;
}

describe("producers", () => {
  it("returns a created record with payload and history", async () => {
    const created = await client.create(TASK, { fields: { name: "with history" }, payload: { grüße: [1, null, "x"] } });
    assert.deepEqual([created.lifecycle, created.state, created.version], [TASK, "waiting", 1]);
    assert.deepEqual(await client.get(created.id), created);
    assert.equal(new TextDecoder().decode(await client.payload(created.id)), '{"grüße":[1,null,"x"]}');
    await client.fire(created.id, "drop");
    const events = (await client.history(created.id)).map((entry) => [entry.event, entry.state]);
    assert.deepEqual(events, [["create", "waiting"], ["drop", "dropped"]]);
  });

  it("stores a bytes payload unchanged", async () => {
    const created = await client.create(TASK, { payload: new Uint8Array([255, 0, 1]) });
    assert.deepEqual(await client.payload(created.id), new Uint8Array([255, 0, 1]));
  });

  it("returns the first record for the same idempotency key", async () => {
    const first = await client.create(TASK, { payload: 1, idempotencyKey: "order 7" });
    assert.equal((await client.create(TASK, { payload: 1, idempotencyKey: "order 7" })).id, first.id);
    const refused = await expectRefusal(client.create(TASK, { payload: 2, idempotencyKey: "order 7" }));
    assert.deepEqual([refused.status, refused.code], [422, "idempotency_key_reused"]);
  });

  it("accepts any Unicode text as idempotency key", async () => {
    for (const key of ["count Müller", "12 € an hour", "数える"]) {
      const first = await client.create(TASK, { payload: key, idempotencyKey: key });
      assert.equal((await client.create(TASK, { payload: key, idempotencyKey: key })).id, first.id);
      // The batch sends the key in the body instead of a header.
      const [repeated] = await client.createBatch(TASK, [{ payload: key, idempotencyKey: key }]);
      assert.ok(repeated && !isProblem(repeated));
      assert.equal(repeated.id, first.id);
    }
    // A mistake of the caller, which is not retried.
    await assert.rejects(client.create(TASK, { idempotencyKey: "two\nlines" }), TypeError);
  });

  it("encodes an id as one path segment", async () => {
    const created = await client.create(TASK);
    for (const name of [`${created.id}/history`, `${created.id}?`, "../records"]) {
      assert.ok([404, 422].includes((await expectRefusal(client.get(name))).status));
    }
  });

  it("rejects a URL with a password and does not show it", () => {
    for (const url of ["http://me:secret@127.0.0.1:1", "me:secret@127.0.0.1", "ftp://me:secret@127.0.0.1"]) {
      assert.throws(
        () => new Client({ url }),
        (error) => error instanceof TypeError && !error.message.includes("secret"),
      );
    }
  });

  it("lets batch items succeed or fail on their own", async () => {
    const wanted = Array.from({ length: 600 }, (_, number) => ({
      fields: { name: `many ${number}` } as object,
      idempotencyKey: `m${number}`,
    }));
    wanted[7] = { fields: { "no such field": 1 }, idempotencyKey: "m7" };
    const created = await client.createBatch(TASK, wanted as { fields: { [name: string]: unknown }; idempotencyKey: string }[]);
    const good = created.flatMap((each) => (isProblem(each) ? [] : [each.id]));
    assert.equal(good.length, 599);
    assert.ok(created[7] && isProblem(created[7]));
    const [repeated] = await client.createBatch(TASK, [{ fields: { name: "many 3" }, idempotencyKey: "m3" }]);
    assert.ok(repeated && !isProblem(repeated));
    assert.equal(repeated.id, good[3]);
    const fired = await client.fireBatch(good.map((record) => ({ record, event: "drop" })));
    assert.ok(fired.every((each) => !isProblem(each) && (each.spawned ?? []).length === 0));
  });

  it("iterates over all pages of a list", async () => {
    const names = Array.from({ length: 250 }, (_, number) => `listed ${number}`);
    await client.createBatch(TASK, names.map((name) => ({ fields: { name } })));
    const found = new Set<unknown>();
    for await (const record of client.records(TASK, { state: "waiting" })) found.add(record.fields["name"]);
    assert.ok(names.every((name) => found.has(name)));
    const page = await client.list(TASK, { limit: 2 });
    assert.equal(page.records.length, 2);
    assert.ok(page.next);
  });

  it("gives code, state, event and reason of a refusal", async () => {
    const created = await client.create(TASK);
    await client.fire(created.id, "drop");
    const { problem } = await expectRefusal(client.fire(created.id, "drop"));
    assert.deepEqual([problem.status, problem.code, problem.state, problem.event], [409, "wrong_state", "dropped", "drop"]);
    assert.ok(problem.reason);
    const stale = await expectRefusal(client.fire((await client.create(TASK)).id, "drop", { version: 7 }));
    assert.equal(stale.code, "version_mismatch");
    assert.equal((await expectRefusal(client.get("01890000-0000-7000-8000-000000000000"))).status, 404);
  });

  it("throws when the server stays unreachable", async () => {
    const unreachable = new Client({ url: "http://127.0.0.1:1", retryPolicy: { retryTimeout: 100 } });
    await assert.rejects(unreachable.get("x"), UnreachableError);
  });
});

describe("streams", () => {
  it("returns new entries and resumes after a seq", async () => {
    const created = await client.create(TASK);
    const seen: LogEntry[] = [];
    for await (const entry of client.stream({ after: 0, record: created.id })) {
      seen.push(entry);
      if (seen.length === 1) await client.fire(created.id, "drop");
      else break;
    }
    assert.deepEqual(seen.map((entry) => entry.event), ["create", "drop"]);
    for await (const entry of client.stream({ after: seen[0]?.seq ?? 0, record: created.id })) {
      assert.equal(entry.event, "drop");
      break;
    }
  });

  it("misses nothing when it reconnects before the first entry", async () => {
    const ownServer = await ServerProcess.launch();
    try {
      const client = new Client({ url: ownServer.url });
      await client.create(TASK);
      const [stream, seen] = [client.stream({ signal: AbortSignal.timeout(TEST_TIMEOUT) }), [] as unknown[]];
      const reading = (async () => {
        for await (const entry of stream) if (seen.push(entry.record) === 2) break;
      })();
      const deadline = performance.now() + TEST_TIMEOUT;
      while (stream.seq === undefined) {
        // The server sends the start position of the stream; there are no entries yet.
        await client.list(TASK);
        assert.ok(performance.now() < deadline, "the server sent no start position");
      }
      await ownServer.kill();
      await ownServer.start();
      const created = [(await client.create(TASK)).id, (await client.create(TASK)).id];
      await reading;
      assert.deepEqual(seen, created);
    } finally {
      await ownServer.close();
    }
  });

  it("continues after the server was killed", async () => {
    const ownServer = await ServerProcess.launch();
    try {
      const client = new Client({ url: ownServer.url });
      const ids: string[] = [];
      for (let number = 0; number < 3; number += 1) ids.push((await client.create(TASK)).id);
      const seen: unknown[] = [];
      for await (const entry of client.stream({ after: 0, signal: AbortSignal.timeout(TEST_TIMEOUT) })) {
        seen.push(entry.record);
        if (seen.length === 4) break;
        if (seen.length < 3) continue;
        await ownServer.kill();
        await ownServer.start();
        ids.push((await client.create(TASK)).id);
      }
      assert.deepEqual(seen, ids);
    } finally {
      await ownServer.close();
    }
  });
});

describe("the calls of a worker", () => {
  beforeEach(async () => {
    const drops = [];
    for await (const { id } of client.records(TASK, { state: "waiting" })) drops.push({ record: id, event: "drop" });
    await client.fireBatch(drops);
  });

  it("runs a job from lease to finish", async () => {
    const created = await client.create(TASK, { payload: "work" });
    const lease = await leaseOne(TASK, { start: false });
    assert.deepEqual([lease.record.id, lease.attempt, lease.payload], [created.id, 1, "work"]);
    assert.equal((await client.start(lease.id, lease.token)).execution?.status, "IN_PROGRESS");
    assert.ok(!(await client.heartbeat(lease.id, lease.token)).stop);
    assert.equal((await client.commit(lease.id, lease.token, { answer: 42 })).execution?.status, "COMMITTED");
    assert.equal((await client.finish(lease.id, lease.token)).record?.state, "done");
    assert.deepEqual((await client.effect(created.id)).result, { answer: 42 });
    assert.deepEqual((await client.executions(created.id)).map((each) => each.status), ["DONE"]);
  });

  it("leases the same jobs for the same idempotency key", async () => {
    await client.createBatch(TASK, [{}, {}, {}]);
    const first = await client.lease([TASK], "by hand", { maxJobs: 2, idempotencyKey: "my lease" });
    const repeated = await client.lease([TASK], "by hand", { maxJobs: 2, idempotencyKey: "my lease" });
    assert.deepEqual(first.map((leased) => leased.id), repeated.map((leased) => leased.id));
    assert.equal(first.length, 2);
    // The leases are the same, so their remaining time does not grow.
    const remaining = (leases: LeasedJob[]): number[] => leases.map((leased) => leased.expires_in_ms ?? 0);
    assert.ok(remaining(repeated).every((later, index) => later > 0 && later <= (remaining(first)[index] ?? 0)));
  });

  it("applies a repeated commit once", async () => {
    const created = await client.create(TASK);
    const lease = await leaseOne(TASK);
    const first = await client.commit(lease.id, lease.token, 1, { finish: true });
    const repeated = await client.commit(lease.id, lease.token, 1, { finish: true });
    assert.deepEqual(repeated.record, first.record);
    assert.equal((await client.effect(created.id)).result, 1);
  });

  it("refuses a commit with a lost lease", async () => {
    const created = await client.create(TASK);
    const lost = await leaseOne(TASK, { lease: 20 });
    // Waits until the first lease has expired and the job is ready again.
    const second = await leaseOne(TASK, { maxWait: TEST_TIMEOUT });
    assert.deepEqual([second.record.id, second.attempt], [created.id, 2]);
    assert.ok((await expectRefusal(client.commit(lost.id, lost.token, "late", { finish: true }))) instanceof LeaseLostError);
    await client.commit(second.id, second.token, "in time", { finish: true });
    const later = await expectRefusal(client.commit(lost.id, lost.token, "later still", { finish: true }));
    assert.ok(later instanceof AlreadyCommittedError);
    assert.equal(later.committedToken, second.token);
    assert.equal((await client.effect(created.id)).result, "in time");
  });

  it("returns a job after a retryable failure or yield, and ends it after a terminal one", async () => {
    await client.create(TASK);
    let lease = await leaseOne(TASK);
    assert.equal((await client.fail(lease.id, lease.token, new RetryableFailure("BUSY", "not now"))).record?.state, "waiting");
    lease = await leaseOne(TASK, { maxWait: TEST_TIMEOUT });
    assert.equal((await client.yield(lease.id, lease.token)).record?.state, "waiting");
    lease = await leaseOne(TASK, { maxWait: TEST_TIMEOUT });
    const { record } = await client.fail(lease.id, lease.token, new TerminalFailure("BROKEN", "never"));
    assert.deepEqual([record?.state, record?.fields["code"], record?.fields["message"]], ["dead", "BROKEN", "never"]);
  });

  it("lets batched reports succeed or fail on their own", async () => {
    await client.createBatch(TASK, [{}, {}, {}]);
    const leases = await client.lease([TASK], "by hand", { maxJobs: 3 });
    const reports = leases.map((each, number) => ({
      execution: each.id,
      token: each.token + (number === 1 ? 1 : 0),
      kind: "commit" as const,
      finish: true,
    }));
    const answers = await client.reportBatch(reports);
    assert.deepEqual(answers.map((each) => (isProblem(each) ? each.code : each.state)), ["done", "invalid_input", "done"]);
  });
});
