/** Keeps a job's lease while it runs, and hears from the server that it is to stop. */

import type { Client } from "./client.js";
import type { Job } from "./job.js";
import { isFinal } from "./patience.js";
import type { Lasting } from "./requests.js";

/** A lease is kept by so many heartbeats: two may be lost. */
const BEATS = 3;

/** No heart beats faster than this, in milliseconds. */
const FASTEST = 5;

/** A beat that found no server is tried again so soon. */
const AGAIN = 50;

/** No beat is given less time for its answer. */
const SHORTEST_WAIT = 250;

export interface Heard {
  /** It was told to stop, and still runs a beat later. */
  overdue: () => void;
  /** The job is no longer ours. */
  lost: (why: string) => void;
}

/** Returns what ends it. */
export function keepAlive(client: Client, job: Job, lasting: Lasting, heard: Heard): () => void {
  const every = Math.max(job.lasts / BEATS, FASTEST);
  const timeout = Math.max(Math.min(client.timeout, every), SHORTEST_WAIT);
  let over = false;
  let toldToStop = false;
  let timer: NodeJS.Timeout;

  const beat = async (): Promise<number | undefined> => {
    try {
      const { execution, token } = job;
      const { stop } = await client.reportOnce({ execution, token, do: "heartbeat", ...lasting }, timeout);
      if (over) return undefined;
      job.kept();
      if (stop && toldToStop) heard.overdue();
      else if (stop) job.cancel("stop");
      toldToStop ||= stop === true;
      return every;
    } catch (error) {
      if (over) return undefined;
      if (!isFinal(error) && performance.now() < job.goneAt) return Math.min(AGAIN, every);
      // The report came first.
      if (job.reported && isFinal(error)) return undefined;
      heard.lost(error instanceof Error ? error.message : String(error));
      job.cancel("lease_lost");
      return undefined;
    }
  };
  const next = (wait: number): void => {
    timer = setTimeout(() => {
      void beat().then((wait) => {
        if (wait !== undefined && !over) next(wait);
      });
    }, wait);
  };
  // One that was found again has less of its lease left: its heart beats sooner.
  next(Math.max(0, Math.min(every, job.goneAt - performance.now() - job.lasts + every)));
  return () => {
    over = true;
    clearTimeout(timer);
  };
}
