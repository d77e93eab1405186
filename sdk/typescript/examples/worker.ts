/** Counts words. Start a server (`onceward serve`), then this program, then the producer. */

import { Worker } from "onceward";

interface WordsPayload {
  words: string;
}

function decodePayload(payload: unknown): WordsPayload {
  if (typeof payload === "object" && payload !== null && "words" in payload && typeof payload.words === "string") {
    return { words: payload.words };
  }
  throw new TypeError("the payload has no `words`");
}

const worker = new Worker({ concurrency: 4 });
worker.handle("execution.job", (job) => ({ count: job.payload.words.split(/\s+/).filter(Boolean).length }), decodePayload);
await worker.run();
