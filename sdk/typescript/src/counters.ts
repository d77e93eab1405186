/** Counts the outcomes of a worker's jobs, for its last log line. */

import type { Report } from "./requests.js";

/** Counts accepted reports. */
export class JobCounters {
  readonly #counts = { commit: 0, fail: 0, yield: 0 };

  count(report: Report): void {
    if (report.kind === "commit" || report.kind === "fail" || report.kind === "yield") this.#counts[report.kind] += 1;
  }

  toString(): string {
    const { commit, fail } = this.#counts;
    return `${commit === 1 ? "1 job" : `${commit} jobs`} committed, ${fail} failed, ${this.#counts.yield} yielded`;
  }
}
