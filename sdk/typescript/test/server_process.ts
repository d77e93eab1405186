/** A server process with its own database. `ONCEWARD_BIN` names the program. */

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

import type { Client, Record } from "onceward";

/** Longest wait of a test for one condition, in milliseconds. Only a failing test waits that long. */
export const TEST_TIMEOUT = 30_000;

export const TASK = "sdk.task";

const LIFECYCLES = join(import.meta.dirname, "../../../tests/lifecycles");

const run = promisify(execFile);

function serverBinary(): string {
  const binary = process.env["ONCEWARD_BIN"];
  if (!binary) throw new Error("ONCEWARD_BIN is not set; run `cargo xtask sdk`");
  return binary;
}

/** A server that can be killed and restarted on the same address and database. */
export class ServerProcess {
  url = "";
  #listenAddress = "127.0.0.1:0";
  #process: ChildProcess | undefined;

  private constructor(
    readonly folder: string,
    readonly db: string,
  ) {}

  /** Starts a server with a new database. */
  static async launch(): Promise<ServerProcess> {
    const folder = await mkdtemp(join(tmpdir(), "onceward-sdk-"));
    const server = new ServerProcess(folder, `sqlite:${join(folder, "test.db")}`);
    await server.start();
    return server;
  }

  async start(): Promise<void> {
    const log = await open(join(this.folder, "log"), "a");
    const serveArguments = ["serve", "--db", this.db, "--listen", this.#listenAddress, "--lifecycles", LIFECYCLES];
    const child = spawn(serverBinary(), serveArguments, { stdio: ["ignore", "pipe", log.fd] });
    await log.close();
    this.#process = child;
    for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream })) {
      const match = /http:\/\/[0-9.]+:\d+/.exec(line);
      if (match) {
        this.url = match[0];
        this.#listenAddress = this.url.replace("http://", "");
        // Later output must not fill the pipe.
        child.stdout?.resume();
        return;
      }
    }
    throw new Error(`the server printed no address: ${await readFile(join(this.folder, "log"), "utf8")}`);
  }

  sendSignal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  /** Ends the server with SIGKILL. */
  async kill(): Promise<void> {
    if (this.#process === undefined || this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exited = once(this.#process, "exit");
    this.sendSignal("SIGKILL");
    await exited;
  }

  async close(): Promise<void> {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** Creates an API key. The server must not run. */
  async createApiKey(owner: string, role: string): Promise<string> {
    const keyArguments = ["key", "create", "--db", this.db, "--owner", owner, "--role", role];
    const { stdout } = await run(serverBinary(), keyArguments, { timeout: TEST_TIMEOUT });
    const match = /\bow_\w+/.exec(stdout);
    if (!match) throw new Error(`no API key in: ${stdout}`);
    return match[0];
  }

  /** Asserts that `onceward verify` finds no difference between log and database. */
  async verify(): Promise<void> {
    await run(serverBinary(), ["verify", "--db", this.db], { timeout: TEST_TIMEOUT });
  }
}

/** Follows the record's log until it enters one of the states. */
export async function waitForState(client: Client, record: string, ...states: string[]): Promise<Record> {
  for await (const entry of client.stream({ after: 0, record, signal: AbortSignal.timeout(TEST_TIMEOUT) })) {
    if (entry.state !== undefined && states.includes(entry.state)) return client.get(record);
  }
  throw new Error(`${record} entered none of ${states.join(", ")}: ${JSON.stringify(await client.get(record))}`);
}

/** An event that happens once and can be awaited. */
export class OneShotEvent<T = void> {
  #resolve!: (value: T) => void;
  readonly #promise = new Promise<T>((resolve) => (this.#resolve = resolve));

  set(value: T): void {
    this.#resolve(value);
  }

  async wait(): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error("the event did not happen in time")), TEST_TIMEOUT);
    });
    try {
      return await Promise.race([this.#promise, timeout]);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Resolves when the signal is aborted. */
export async function waitForAbort(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort", { signal: AbortSignal.timeout(TEST_TIMEOUT) });
}
