/** The real server, on a database of its own: `ONCEWARD_BIN` names the program. */

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

import type { Client, Record } from "onceward";

/** So long may anything take that a test waits for, in milliseconds. Nothing takes it unless it is broken. */
export const DEADLINE = 30_000;

export const TASK = "sdk.task";

const LIFECYCLES = join(import.meta.dirname, "../../../tests/lifecycles");

const run = promisify(execFile);

function binary(): string {
  const found = process.env["ONCEWARD_BIN"];
  if (!found) throw new Error("ONCEWARD_BIN names no server: run `cargo xtask sdk`");
  return found;
}

/** A server that can be killed and started again, on the same address and database. */
export class Server {
  url = "";
  #listen = "127.0.0.1:0";
  #process: ChildProcess | undefined;

  private constructor(
    readonly folder: string,
    readonly db: string,
  ) {}

  static async begin(): Promise<Server> {
    const folder = await mkdtemp(join(tmpdir(), "onceward-sdk-"));
    const server = new Server(folder, `sqlite:${join(folder, "test.db")}`);
    await server.start();
    return server;
  }

  async start(): Promise<void> {
    const log = await open(join(this.folder, "log"), "a");
    const words = ["serve", "--db", this.db, "--listen", this.#listen, "--lifecycles", LIFECYCLES];
    const child = spawn(binary(), words, { stdio: ["ignore", "pipe", log.fd] });
    await log.close();
    this.#process = child;
    for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream })) {
      const found = /http:\/\/[0-9.]+:\d+/.exec(line);
      if (found) {
        this.url = found[0];
        this.#listen = this.url.replace("http://", "");
        // What it says from now on must not fill the pipe.
        child.stdout?.resume();
        return;
      }
    }
    throw new Error(`the server said no address: ${await readFile(join(this.folder, "log"), "utf8")}`);
  }

  tell(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  /** As when the power goes. */
  async kill(): Promise<void> {
    if (this.#process === undefined || this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const gone = once(this.#process, "exit");
    this.tell("SIGKILL");
    await gone;
  }

  async close(): Promise<void> {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** A new key, made while no server runs. */
  async key(owner: string, role: string): Promise<string> {
    const words = ["key", "create", "--db", this.db, "--owner", owner, "--role", role];
    const { stdout } = await run(binary(), words, { timeout: DEADLINE });
    const found = /\bow_\w+/.exec(stdout);
    if (!found) throw new Error(`no key in: ${stdout}`);
    return found[0];
  }

  /** What the log tells and what stands in the database are the same. */
  async verify(): Promise<void> {
    await run(binary(), ["verify", "--db", this.db], { timeout: DEADLINE });
  }
}

/** Waits until the record is in one of the states, as its log tells. */
export async function until(client: Client, record: string, ...states: string[]): Promise<Record> {
  for await (const entry of client.stream({ after: 0, record, signal: AbortSignal.timeout(DEADLINE) })) {
    if (entry.state !== undefined && states.includes(entry.state)) return client.get(record);
  }
  throw new Error(`${record} came to none of ${states.join(", ")}: ${JSON.stringify(await client.get(record))}`);
}

/** Something that happens once, and can be waited for. */
export class Moment<T = void> {
  #resolve!: (value: T) => void;
  readonly #promise = new Promise<T>((resolve) => (this.#resolve = resolve));

  set(value: T): void {
    this.#resolve(value);
  }

  async wait(): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error("nothing has happened")), DEADLINE);
    });
    try {
      return await Promise.race([this.#promise, late]);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Resolves when the signal says so. */
export async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort", { signal: AbortSignal.timeout(DEADLINE) });
}
