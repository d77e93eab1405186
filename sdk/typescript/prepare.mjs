// Run by npm when the library is installed from a checkout: npm links such a folder without what it takes to build it.

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL(".", import.meta.url));
const compiler = `${folder}node_modules/typescript/bin/tsc`;
// Settings of the call that brought us here are not meant for this one.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_config_(global|prefix|local_prefix|omit|include)$/i.test(name)));
const options = { cwd: folder, env, stdio: "inherit" };
if (!existsSync(compiler)) {
  execFileSync("npm", ["ci", "--ignore-scripts", "--include=dev", "--no-audit", "--no-fund"], options);
}
execFileSync(process.execPath, [compiler, "-p", "tsconfig.build.json"], options);
