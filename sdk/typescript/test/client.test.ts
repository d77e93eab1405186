/** What producers and lookers do, and what workers do by hand. */

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";

import { AlreadyCommitted, Client, Fail, isProblem, LeaseLost, Refused, Retry, Unreachable, type Entry, type Lease } from "onceward";

import { DEADLINE, Server, TASK } from "./serving.js";

let server: Server;
let client: Client;

before(async () => {
  server = await Server.begin();
  client = new Client({ url: server.url });
});
after(() => server.close());

async function refusal(work: Promise<unknown>): Promise<Refused> {
  const error: unknown = await work.then(
    () => undefined,
    (error: unknown) => error,
  );
  assert.ok(error instanceof Refused, `refused, not ${String(error)}`);
  return error;
}

async function one(lifecycle: string, options: Parameters<Client["lease"]>[2] = {}): Promise<Lease> {
  const [lease] = await client.lease([lifecycle], "by hand", options);
  assert.ok(lease);
  return lease;
}

describe("producers", () => {
  it("makes a record, finds it and tells of it", async () => {
    const made = await client.create(TASK, { fields: { name: "told of" }, payload: { grüße: [1, null, "x"] } });
    assert.deepEqual([made.lifecycle, made.state, made.version], [TASK, "waiting", 1]);
    assert.deepEqual(await client.get(made.id), made);
    assert.equal(new TextDecoder().decode(await client.payload(made.id)), '{"grüße":[1,null,"x"]}');
    await client.fire(made.id, "drop");
    const events = (await client.history(made.id)).map((entry) => [entry.event, entry.state]);
    assert.deepEqual(events, [["create", "waiting"], ["drop", "dropped"]]);
  });

  it("takes bytes as a payload", async () => {
    const made = await client.create(TASK, { payload: new Uint8Array([255, 0, 1]) });
    assert.deepEqual(await client.payload(made.id), new Uint8Array([255, 0, 1]));
  });

  it("makes no second record with the same key", async () => {
    const first = await client.create(TASK, { payload: 1, once: "order 7" });
    assert.equal((await client.create(TASK, { payload: 1, once: "order 7" })).id, first.id);
    const refused = await refusal(client.create(TASK, { payload: 2, once: "order 7" }));
    assert.deepEqual([refused.status, refused.code], [422, "key_reused"]);
  });

  it("takes keys of any letters", async () => {
    for (const once of ["count Müller", "12 € an hour", "数える"]) {
      const first = await client.create(TASK, { payload: once, once });
      assert.equal((await client.create(TASK, { payload: once, once })).id, first.id);
      // By its letters, not by how they were written on the way.
      const [again] = await client.createMany(TASK, [{ payload: once, once }]);
      assert.ok(again && !isProblem(again));
      assert.equal(again.id, first.id);
    }
    // A mistake of the caller's, which no patience mends.
    await assert.rejects(client.create(TASK, { once: "two\nlines" }), TypeError);
  });

  it("takes an id as one part of a path", async () => {
    const made = await client.create(TASK);
    for (const name of [`${made.id}/history`, `${made.id}?`, "../records"]) {
      assert.ok([404, 422].includes((await refusal(client.get(name))).status));
    }
  });

  it("takes no URL with a password, and does not show it", () => {
    for (const url of ["http://me:secret@127.0.0.1:1", "me:secret@127.0.0.1", "ftp://me:secret@127.0.0.1"]) {
      assert.throws(
        () => new Client({ url }),
        (error) => error instanceof TypeError && !error.message.includes("secret"),
      );
    }
  });

  it("makes many, each on its own", async () => {
    const wanted = Array.from({ length: 600 }, (_, number) => ({ fields: { name: `many ${number}` } as object, once: `m${number}` }));
    wanted[7] = { fields: { "no such field": 1 }, once: "m7" };
    const made = await client.createMany(TASK, wanted as { fields: { [name: string]: unknown }; once: string }[]);
    const good = made.flatMap((each) => (isProblem(each) ? [] : [each.id]));
    assert.equal(good.length, 599);
    assert.ok(made[7] && isProblem(made[7]));
    const [again] = await client.createMany(TASK, [{ fields: { name: "many 3" }, once: "m3" }]);
    assert.ok(again && !isProblem(again));
    assert.equal(again.id, good[3]);
    const fired = await client.fireMany(good.map((record) => ({ record, event: "drop" })));
    assert.ok(fired.every((each) => !isProblem(each) && each.spawned.length === 0));
  });

  it("goes through all pages of a list", async () => {
    const names = Array.from({ length: 250 }, (_, number) => `listed ${number}`);
    await client.createMany(TASK, names.map((name) => ({ fields: { name } })));
    const found = new Set<unknown>();
    for await (const record of client.records(TASK, { state: "waiting" })) found.add(record.fields["name"]);
    assert.ok(names.every((name) => found.has(name)));
    const page = await client.list(TASK, { limit: 2 });
    assert.equal(page.records.length, 2);
    assert.ok(page.next);
  });

  it("says why it is refused", async () => {
    const made = await client.create(TASK);
    await client.fire(made.id, "drop");
    const { problem } = await refusal(client.fire(made.id, "drop"));
    assert.deepEqual([problem.status, problem.code, problem.state, problem.event], [409, "wrong_state", "dropped", "drop"]);
    assert.ok(problem.reason);
    const stale = await refusal(client.fire((await client.create(TASK)).id, "drop", { version: 7 }));
    assert.equal(stale.code, "version_mismatch");
    assert.equal((await refusal(client.get("01890000-0000-7000-8000-000000000000"))).status, 404);
  });

  it("says that nobody is there", async () => {
    const nobody = new Client({ url: "http://127.0.0.1:1", patience: 100 });
    await assert.rejects(nobody.get("x"), Unreachable);
  });
});

describe("streams", () => {
  it("tells the log and reads on", async () => {
    const made = await client.create(TASK);
    const seen: Entry[] = [];
    for await (const entry of client.stream({ after: 0, record: made.id })) {
      seen.push(entry);
      if (seen.length === 1) await client.fire(made.id, "drop");
      else break;
    }
    assert.deepEqual(seen.map((entry) => entry.event), ["create", "drop"]);
    for await (const entry of client.stream({ after: seen[0]?.seq ?? 0, record: made.id })) {
      assert.equal(entry.event, "drop");
      break;
    }
  });

  it("misses nothing before the first entry", async () => {
    const own = await Server.begin();
    try {
      const client = new Client({ url: own.url });
      await client.create(TASK);
      const [stream, seen] = [client.stream({ signal: AbortSignal.timeout(DEADLINE) }), [] as unknown[]];
      const reading = (async () => {
        for await (const entry of stream) if (seen.push(entry.record) === 2) break;
      })();
      const until = performance.now() + DEADLINE;
      while (stream.seq === undefined) {
        // The server says where a stream begins; it has nothing else to tell yet.
        await client.list(TASK);
        assert.ok(performance.now() < until, "the server has named no place");
      }
      await own.kill();
      await own.start();
      const made = [(await client.create(TASK)).id, (await client.create(TASK)).id];
      await reading;
      assert.deepEqual(seen, made);
    } finally {
      await own.close();
    }
  });

  it("goes on after the server was killed", async () => {
    const own = await Server.begin();
    try {
      const client = new Client({ url: own.url });
      const ids: string[] = [];
      for (let number = 0; number < 3; number += 1) ids.push((await client.create(TASK)).id);
      const seen: unknown[] = [];
      for await (const entry of client.stream({ after: 0, signal: AbortSignal.timeout(DEADLINE) })) {
        seen.push(entry.record);
        if (seen.length === 4) break;
        if (seen.length < 3) continue;
        await own.kill();
        await own.start();
        ids.push((await client.create(TASK)).id);
      }
      assert.deepEqual(seen, ids);
    } finally {
      await own.close();
    }
  });
});

describe("a worker without `Worker`", () => {
  beforeEach(async () => {
    const waiting = [];
    for await (const { id } of client.records(TASK, { state: "waiting" })) waiting.push({ record: id, event: "drop" });
    await client.fireMany(waiting);
  });

  it("lives a whole life step by step", async () => {
    const made = await client.create(TASK, { payload: "work" });
    const lease = await one(TASK, { start: false });
    assert.deepEqual([lease.record.id, lease.attempt, lease.payload], [made.id, 1, "work"]);
    assert.equal((await client.start(lease.id, lease.token)).execution?.status, "IN_PROGRESS");
    assert.ok(!(await client.heartbeat(lease.id, lease.token)).stop);
    assert.equal((await client.commit(lease.id, lease.token, { answer: 42 })).execution?.status, "COMMITTED");
    assert.equal((await client.finish(lease.id, lease.token)).record?.state, "done");
    assert.deepEqual((await client.effect(made.id)).result, { answer: 42 });
    assert.deepEqual((await client.executions(made.id)).map((each) => each.status), ["DONE"]);
  });

  it("leases the same jobs with the same key", async () => {
    await client.createMany(TASK, [{}, {}, {}]);
    const first = await client.lease([TASK], "by hand", { max: 2, once: "my lease" });
    const again = await client.lease([TASK], "by hand", { max: 2, once: "my lease" });
    assert.deepEqual(first.map((each) => each.id), again.map((each) => each.id));
    assert.equal(first.length, 2);
    // The same leases, so no more is left of them.
    const left = (leases: Lease[]): number[] => leases.map((each) => each.expires_in_ms ?? 0);
    assert.ok(left(again).every((later, number) => later > 0 && later <= (left(first)[number] ?? 0)));
  });

  it("lands a commit that is told twice once", async () => {
    const made = await client.create(TASK);
    const lease = await one(TASK);
    const first = await client.commit(lease.id, lease.token, 1, { finish: true });
    const again = await client.commit(lease.id, lease.token, 1, { finish: true });
    assert.deepEqual(again.record, first.record);
    assert.equal((await client.effect(made.id)).result, 1);
  });

  it("commits nothing with a lost lease", async () => {
    const made = await client.create(TASK);
    const lost = await one(TASK, { lease: 20 });
    // Waits until the first lease has run out and the job is to be had again.
    const taken = await one(TASK, { wait: DEADLINE });
    assert.deepEqual([taken.record.id, taken.attempt], [made.id, 2]);
    assert.ok((await refusal(client.commit(lost.id, lost.token, "late", { finish: true }))) instanceof LeaseLost);
    await client.commit(taken.id, taken.token, "in time", { finish: true });
    const later = await refusal(client.commit(lost.id, lost.token, "later still", { finish: true }));
    assert.ok(later instanceof AlreadyCommitted);
    assert.equal(later.committed, taken.token);
    assert.equal((await client.effect(made.id)).result, "in time");
  });

  it("fails, retryably and not, and gives back", async () => {
    await client.create(TASK);
    let lease = await one(TASK);
    assert.equal((await client.fail(lease.id, lease.token, new Retry("BUSY", "not now"))).record?.state, "waiting");
    lease = await one(TASK, { wait: DEADLINE });
    assert.equal((await client.yield(lease.id, lease.token)).record?.state, "waiting");
    lease = await one(TASK, { wait: DEADLINE });
    const { record } = await client.fail(lease.id, lease.token, new Fail("BROKEN", "never"));
    assert.deepEqual([record?.state, record?.fields["code"], record?.fields["message"]], ["dead", "BROKEN", "never"]);
  });

  it("reports many, each on its own", async () => {
    await client.createMany(TASK, [{}, {}, {}]);
    const leases = await client.lease([TASK], "by hand", { max: 3 });
    const reports = leases.map((each, number) => ({
      execution: each.id,
      token: each.token + (number === 1 ? 1 : 0),
      do: "commit" as const,
      finish: true,
    }));
    const answers = await client.reportMany(reports);
    assert.deepEqual(answers.map((each) => (isProblem(each) ? each.code : each.record?.state)), ["done", "bad_input", "done"]);
  });
});
