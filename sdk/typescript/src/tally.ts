/** What became of a worker's jobs, for the line with which it ends. */

import type { Report } from "./requests.js";

/** Counts what the server has taken. */
export class Tally {
  readonly #taken = { commit: 0, fail: 0, yield: 0 };

  took(report: Report): void {
    if (report.do === "commit" || report.do === "fail" || report.do === "yield") this.#taken[report.do] += 1;
  }

  toString(): string {
    return `${jobs(this.#taken.commit)} committed, ${this.#taken.fail} failed, ${this.#taken.yield} given back`;
  }
}

export function jobs(count: number): string {
  return count === 1 ? "1 job" : `${count} jobs`;
}
