// Builds the package when npm installs it from a checkout: npm links such a folder without its development dependencies.

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL(".", import.meta.url));
const compiler = `${folder}node_modules/typescript/bin/tsc`;
// Drop settings of the outer npm call, which would apply to this one.
const outerSetting = /^npm_config_(global|prefix|local_prefix|omit|include)$/i;
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !outerSetting.test(name)));
const options = { cwd: folder, env, stdio: "inherit" };
if (!existsSync(compiler)) {
  execFileSync("npm", ["ci", "--ignore-scripts", "--include=dev", "--no-audit", "--no-fund"], options);
}
execFileSync(process.execPath, [compiler, "-p", "tsconfig.build.json"], options);
