/** Counts words. Start a server (`onceward serve`), then this, then the producer. */

import { Worker } from "onceward";

interface Text {
  words: string;
}

function textOf(payload: unknown): Text {
  if (typeof payload === "object" && payload !== null && "words" in payload && typeof payload.words === "string") {
    return { words: payload.words };
  }
  throw new TypeError("there are no words in it");
}

const worker = new Worker({ concurrency: 4 });
worker.handle("execution.job", (job) => ({ count: job.payload.words.split(/\s+/).filter(Boolean).length }), textOf);
await worker.run();
