/** Answers that a server gives rarely: full, broken, late, lost. Another server stands between, which gives them when it should. */

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";

import { Client, Fail, isProblem, Worker, type Entry, type Handler, type Reason, type WorkerOptions } from "onceward";

import { Between, jobsOf, trouble, type Asked, type Play, type Said } from "./between.js";
import { aborted, DEADLINE, Moment, Server, TASK, until } from "./serving.js";

let server: Server;
let client: Client;

/** Longer than any test: a lease that is kept by nobody who counts it as fresh. */
const LONG = 3_600_000;

before(async () => {
  server = await Server.begin();
  client = new Client({ url: server.url });
});
after(() => server.close());

const passOn: Play = (asked) => asked.passOn();

/** Runs a worker behind what is played while the test does its work; what it logged. */
async function working(
  play: Play,
  handler: Handler<never>,
  test: (worker: Worker) => Promise<void>,
  options: WorkerOptions = {},
): Promise<string[]> {
  const said: string[] = [];
  const between = await Between.begin(server.url, play);
  const worker = new Worker({ url: between.url, wait: 5_000, grace: 5_000, log: (message) => void said.push(message), ...options });
  worker.handle<never>(TASK, handler);
  const running = worker.run({ signals: false });
  try {
    await Promise.race([test(worker), running]);
  } finally {
    worker.stop();
    await running;
    between.close();
  }
  return said;
}

/** Says of the first job that so much is left of its lease. */
function firstLeft(milliseconds: number): (asked: Asked) => Promise<Said> {
  let told = false;
  return async (asked) => {
    const said = await asked.passOn();
    if (told || !asked.isLease) return said;
    const [first, ...rest] = jobsOf(said);
    if (first === undefined) return said;
    told = true;
    return { ...said, body: JSON.stringify({ executions: [{ ...first, expires_in_ms: milliseconds }, ...rest] }) };
  };
}

describe("a server that is full or broken for a moment", () => {
  it("is called again", async () => {
    const answers = [trouble(507, "store_full"), trouble(500, "internal"), trouble(429, "too_fast", { retry_after_ms: 1 })];
    const between = await Between.begin(server.url, (asked) => answers.pop() ?? asked.passOn());
    try {
      const made = await new Client({ url: between.url }).create(TASK, { fields: { name: "made at last" } });
      assert.equal(made.state, "waiting");
      assert.equal(answers.length, 0);
    } finally {
      between.close();
    }
    for await (const { id } of client.records(TASK, { state: "waiting" })) await client.fire(id, "drop");
  });

  it("does not end a worker that asks for jobs", async () => {
    const answers = [trouble(501, "http_501"), trouble(507, "store_full"), trouble(500, "internal")];
    await working(
      (asked) => (asked.isLease ? answers.pop() : undefined) ?? asked.passOn(),
      () => "done all the same",
      async () => void (await until(client, (await client.create(TASK)).id, "done")),
    );
    assert.equal(answers.length, 0);
  });

  it("gives no handler a payload that is another", async () => {
    let harmed = 2;
    const play: Play = async (asked) => {
      const said = await asked.passOn();
      if (!asked.path.endsWith("/payload") || harmed === 0) return said;
      harmed -= 1;
      return { ...said, body: said.body.replace("x", "y") };
    };
    const text = "x".repeat(100_000);
    await working(
      play,
      (job) => job.payload === text,
      async () => {
        const made = await client.create(TASK, { payload: text });
        assert.equal((await until(client, made.id, "done")).attempt, 2);
        assert.equal((await client.effect(made.id)).result, true);
      },
    );
  });

  it("costs no attempt by a payload that cannot be had for now", async () => {
    let fetched = 0;
    const play: Play = async (asked) => {
      if (!asked.path.endsWith("/payload")) return asked.passOn();
      fetched += 1;
      return fetched > 1 ? asked.passOn() : trouble(503, "overloaded");
    };
    const text = "x".repeat(100_000);
    const between = await Between.begin(server.url, play);
    const worker = new Worker({ url: between.url, wait: 5_000, grace: 5_000, patience: 0, log: () => undefined });
    worker.handle<never>("execution.job", (job) => job.payload === text);
    const running = worker.run({ signals: false });
    try {
      const made = await client.create("execution.job", { payload: text, fields: { budget: 1 } });
      // Given back once, with a budget of one.
      assert.deepEqual([(await until(client, made.id, "SUCCEEDED")).attempt, fetched], [2, 2]);
      assert.equal((await client.effect(made.id)).result, true);
    } finally {
      worker.stop();
      await running;
      between.close();
    }
  });

  it("fails a job whose payload is not there", async () => {
    const answers = [trouble(404, "not_found"), trouble(404, "not_found")];
    await working(
      (asked) => (asked.path.endsWith("/payload") ? answers.pop() : undefined) ?? asked.passOn(),
      (job) => (job.payload as string).length,
      async () => {
        const made = await client.create(TASK, { payload: "x".repeat(100_000) });
        const done = await until(client, made.id, "done");
        assert.deepEqual([done.attempt, done.fields["code"]], [3, "PAYLOAD_UNAVAILABLE"]);
      },
    );
  });

  it("loses no lease by a heartbeat that is not taken", async () => {
    const [answers, beaten] = [[trouble(507, "store_full"), trouble(500, "internal")], new Moment()];
    const play: Play = async (asked) => {
      if (!asked.isHeartbeat) return asked.passOn();
      const instead = answers.pop();
      if (instead !== undefined) return instead;
      const said = await asked.passOn();
      beaten.set();
      return said;
    };
    await working(
      play,
      async (job) => {
        await beaten.wait();
        return job.reason ?? "no reason";
      },
      async () => {
        const made = await client.create(TASK);
        assert.equal((await until(client, made.id, "done")).attempt, 1);
        assert.equal((await client.effect(made.id)).result, "no reason");
      },
      { lease: 3_000 },
    );
  });

  it("takes a commit that it has not taken for a moment", async () => {
    const answers = [trouble(507, "store_full"), trouble(500, "internal"), undefined];
    await working(
      (asked) => (asked.path.endsWith("/commit") && answers.length > 0 ? answers.pop() : asked.passOn()),
      () => "landed",
      async () => {
        const made = await client.create(TASK);
        assert.equal((await until(client, made.id, "done")).attempt, 1);
        assert.equal((await client.effect(made.id)).result, "landed");
      },
    );
    assert.equal(answers.length, 0);
  });

  it("fails a job at whose commit it breaks", async () => {
    await working(
      (asked) => (asked.path.endsWith(".1/commit") ? trouble(500, "internal") : asked.passOn()),
      (job) => job.attempt,
      async () => {
        const { id, fields } = await until(client, (await client.create(TASK)).id, "done");
        assert.deepEqual([fields["failures"], fields["code"]], [1, "internal"]);
        assert.equal((await client.effect(id)).result, 2);
      },
      { lease: LONG },
    );
  });
});

describe("leases that are older than they look", () => {
  it("begins jobs of a lost answer with a heartbeat", async () => {
    const order: string[] = [];
    let lost = false;
    const play: Play = async (asked) => {
      const said = await asked.passOn();
      if (asked.isHeartbeat) order.push("heartbeat");
      if (!asked.isLease || lost || jobsOf(said).length === 0) return said;
      lost = true;
      return undefined;
    };
    await working(
      play,
      () => void order.push("handler"),
      async () => void (await until(client, (await client.create(TASK)).id, "done")),
      { lease: LONG },
    );
    assert.deepEqual(order, ["heartbeat", "handler"]);
  });

  it("does not begin jobs of a lost answer that moved away", async () => {
    const [begun, lost]: [string[], Moment] = [[], new Moment()];
    let stale: Said | undefined;
    let first = true;
    const play: Play = async (asked) => {
      const found = stale;
      if (asked.isLease && found !== undefined) {
        stale = undefined;
        return found;
      }
      const said = await asked.passOn();
      const [job] = asked.isLease && first ? jobsOf(said) : [];
      if (job === undefined) return said;
      first = false;
      await client.fire(job.record.id, "drop");
      lost.set();
      // As a server without what became of it since would say.
      stale = said;
      return undefined;
    };
    await working(
      play,
      (job) => void begun.push(job.id),
      async () => {
        const dropped = await client.create(TASK);
        await lost.wait();
        const other = await client.create(TASK);
        await until(client, other.id, "done");
        assert.deepEqual([(await client.get(dropped.id)).state, begun], ["dropped", [other.id]]);
      },
      { lease: LONG },
    );
  });

  it("does not begin a job whose lease is over", async () => {
    const begun: number[] = [];
    await working(
      firstLeft(0),
      (job) => void begun.push(job.attempt),
      async () => void (await until(client, (await client.create(TASK)).id, "done")),
      { lease: 1_000 },
    );
    assert.deepEqual(begun, [2]);
  });

  it("beats by what is left of a lease", async () => {
    const [beaten, play] = [new Moment(), firstLeft(900)];
    await working(
      async (asked) => {
        const said = await play(asked);
        if (asked.isHeartbeat) beaten.set();
        return said;
      },
      () => beaten.wait(),
      async () => void (await until(client, (await client.create(TASK)).id, "done")),
      { lease: LONG },
    );
  });
});

describe("waits", () => {
  for (const [more, most] of [[{}, 9], [{ retry_after_ms: 60_000 }, 4]] as const) {
    it(`does not storm a server in trouble that says ${JSON.stringify(more)}`, async () => {
      let beats = 0;
      const counted = new Moment<[number, Reason | undefined]>();
      await working(
        (asked) => {
          if (!asked.isHeartbeat) return asked.passOn();
          beats += 1;
          return trouble(503, "overloaded", more);
        },
        async (job) => {
          if (job.attempt > 1) return;
          await aborted(job.signal);
          counted.set([beats, job.reason]);
        },
        async () => {
          const made = await client.create(TASK);
          const [number, reason] = await counted.wait();
          assert.equal(reason, "lease_lost");
          assert.ok(number >= 2 && number <= most, `${number} heartbeats`);
          await until(client, made.id, "done");
        },
        { lease: 1_500 },
      );
    });
  }

  it("beats the hearts of all jobs in one call", async () => {
    const [beaten, goOn] = [new Moment<number>(), new Moment()];
    const made = await client.createMany(TASK, Array.from({ length: 20 }, () => ({})));
    await working(
      (asked) => {
        if (asked.isHeartbeat) beaten.set(asked.beats);
        return asked.passOn();
      },
      () => goOn.wait(),
      async () => {
        assert.equal(await beaten.wait(), 20);
        goOn.set();
        for (const each of made) {
          assert.ok(!isProblem(each));
          await until(client, each.id, "done");
        }
      },
      { lease: 6_000, concurrency: 20 },
    );
  });

  it("gives a server the time that it asks for", async () => {
    const calls: number[] = [];
    await working(
      (asked) => {
        if (asked.isLease) calls.push(performance.now());
        return calls.length === 1 ? { status: 503, body: "busy", headers: { "retry-after": "1" } } : asked.passOn();
      },
      () => {},
      async () => void (await until(client, (await client.create(TASK)).id, "done")),
    );
    const [first = 0, second = 0] = calls;
    assert.ok(second - first >= 1_000, `${second - first} ms`);
  });
});

describe("what the server does not take", () => {
  it("fails a job whose result is too deep", async () => {
    let deep: unknown[] = [];
    for (let depth = 0; depth < 200; depth += 1) deep = [deep];
    const handlers: Handler<never>[] = [() => deep, (job) => job.commit(deep)];
    for (const handler of handlers) {
      await working(
        passOn,
        handler,
        async () => {
          const dead = await until(client, (await client.create(TASK)).id, "dead");
          assert.deepEqual([dead.attempt, dead.fields["code"]], [1, "BAD_RESULT"]);
        },
        { lease: LONG },
      );
    }
  });

  it("tells a failure whatever is in its words", async () => {
    // Cut at 500, this would be cut in half.
    for (const [words, told] of [["half a smile: \ud83d", "half a smile: \ufffd"], [`x${"😀".repeat(600)}`, `x${"😀".repeat(499)}`]]) {
      await working(
        passOn,
        () => {
          throw new Fail("BROKEN", words);
        },
        async () => {
          const { fields } = await until(client, (await client.create(TASK)).id, "dead");
          assert.deepEqual([fields["code"], fields["message"]], ["BROKEN", told]);
        },
        { lease: LONG },
      );
    }
  });

  it("tells a failure that is not taken plainly", async () => {
    const answers = [trouble(422, "bad_input")];
    await working(
      (asked) => (asked.path.endsWith("/fail") ? answers.pop() : undefined) ?? asked.passOn(),
      () => {
        throw new Fail("BROKEN", "in words that nobody likes");
      },
      async () => {
        const dead = await until(client, (await client.create(TASK)).id, "dead");
        assert.deepEqual([dead.attempt, dead.fields["code"]], [1, "BROKEN"]);
        assert.doesNotMatch(String(dead.fields["message"]), /likes/);
      },
      { lease: LONG },
    );
  });
});

describe("ends", () => {
  it("fills many places by several calls", async () => {
    const asked_for: number[] = [];
    await working(
      (asked) => {
        if (asked.isLease) asked_for.push((JSON.parse(asked.body) as { max: number }).max);
        return asked.passOn();
      },
      () => {},
      async () => void (await until(client, (await client.create(TASK)).id, "done")),
      { concurrency: 1_001 },
    );
    assert.ok((asked_for[0] ?? Infinity) <= 1_000);
  });

  it("gives back jobs that come too late, all at once", async () => {
    const [taken, stopped, together] = [new Moment(), new Moment(), new Moment()];
    let [first, here] = [true, 0];
    const play: Play = async (asked) => {
      if (asked.path.endsWith("/yield")) {
        here += 1;
        if (here === 3) together.set();
        await together.wait();
      }
      const said = await asked.passOn();
      if (asked.isLease && first && jobsOf(said).length > 0) {
        first = false;
        taken.set();
        await stopped.wait();
      }
      return said;
    };
    const made = await client.createMany(TASK, [{}, {}, {}]);
    await working(
      play,
      () => {},
      async (worker) => {
        await taken.wait();
        worker.stop();
        stopped.set();
      },
      { concurrency: 3 },
    );
    for (const each of made) {
      assert.ok(!isProblem(each));
      const back = await client.get(each.id);
      assert.deepEqual([back.state, back.fields["yields"]], ["waiting", 1]);
      await client.fire(each.id, "drop");
    }
  });
});

describe("streams", () => {
  const entries = (...places: number[]): string =>
    places
      .map((seq) => ({ seq, record: null, version: 1, at: "2026-11-16T12:00:00Z", event: "create" }))
      .map((entry) => `id: ${entry.seq}\nevent: entry\ndata: ${JSON.stringify(entry)}\n\n`)
      .join("");

  /** The places that are told, and after which place each connection asked. */
  async function follow(answers: readonly Said[], most: number): Promise<[number[], unknown[]]> {
    const askedFor: unknown[] = [];
    const between = await Between.begin("", (asked) => {
      askedFor.push(asked.headers["last-event-id"]);
      return answers[askedFor.length - 1];
    });
    const seen: Entry[] = [];
    try {
      for await (const entry of new Client({ url: between.url }).stream({ signal: AbortSignal.timeout(DEADLINE) })) {
        if (seen.push(entry) === most) break;
      }
    } finally {
      between.close();
    }
    return [seen.map((entry) => entry.seq), askedFor];
  }

  it("misses nothing before the first entry and tells nothing twice", async () => {
    const said = ["id: 7\n\n", entries(8), ": still here\n\n", entries(8, 9), entries(10).slice(0, -9), entries(10)];
    const [seen, askedFor] = await follow(said.map((body) => ({ status: 200, body })), 3);
    assert.deepEqual(seen, [8, 9, 10]);
    assert.deepEqual(askedFor, [undefined, "7", "8", "8", "9", "9"]);
  });

  it("goes on when the server is full for a moment", async () => {
    const [seen] = await follow([trouble(500, "internal"), trouble(507, "store_full"), { status: 200, body: entries(1) }], 1);
    assert.deepEqual(seen, [1]);
  });
});
