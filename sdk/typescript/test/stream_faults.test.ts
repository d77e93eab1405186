/** Streams whose connection breaks, or that get errors. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Client, type LogEntry } from "onceward";

import { FaultProxy, problemResponse, type ProxyResponse } from "./proxy.js";
import { TEST_TIMEOUT } from "./server_process.js";

describe("streams", () => {
  const sseEntries = (...seqs: number[]): string =>
    seqs
      .map((seq) => ({ seq, record: null, version: 1, at: "2026-11-16T12:00:00Z", event: "create" }))
      .map((entry) => `id: ${entry.seq}\nevent: entry\ndata: ${JSON.stringify(entry)}\n\n`)
      .join("");

  /** Returns the received sequence numbers, and the `Last-Event-ID` of each connection. */
  async function follow(responses: readonly ProxyResponse[], maxEntries: number): Promise<[number[], unknown[]]> {
    const lastEventIds: unknown[] = [];
    const proxy = await FaultProxy.start("", (request) => {
      lastEventIds.push(request.headers["last-event-id"]);
      return responses[lastEventIds.length - 1];
    });
    const seen: LogEntry[] = [];
    try {
      for await (const entry of new Client({ url: proxy.url }).stream({ signal: AbortSignal.timeout(TEST_TIMEOUT) })) {
        if (seen.push(entry) === maxEntries) break;
      }
    } finally {
      proxy.close();
    }
    return [seen.map((entry) => entry.seq), lastEventIds];
  }

  it("reconnects miss nothing and repeat nothing", async () => {
    const bodies = ["id: 7\n\n", sseEntries(8), ": keep-alive\n\n", sseEntries(8, 9), sseEntries(10).slice(0, -9), sseEntries(10)];
    const [seen, lastEventIds] = await follow(bodies.map((body) => ({ status: 200, body })), 3);
    assert.deepEqual(seen, [8, 9, 10]);
    assert.deepEqual(lastEventIds, [undefined, "7", "8", "8", "9", "9"]);
  });

  it("temporary errors do not end the stream", async () => {
    const entry = { status: 200, body: sseEntries(1) };
    const [seen] = await follow([problemResponse(503, "overloaded"), problemResponse(507, "store_full"), entry], 1);
    assert.deepEqual(seen, [1]);
  });
});
