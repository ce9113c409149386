import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { repository } from "./cluster.js";

const root = fileURLToPath(new URL("../../", import.meta.url));

test("the package has code, types, README and licence, and nothing else", async () => {
  const { stdout } = await promisify(execFile)("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    cwd: root,
  });
  const [pack] = JSON.parse(stdout) as [{ files: { path: string }[]; unpackedSize: number }];
  const paths = pack.files.map((f) => f.path);
  for (const path of ["index", "testing", "worker/index"]) {
    assert.ok(paths.includes(`dist/${path}.js`) && paths.includes(`dist/${path}.d.ts`), path);
  }
  const outside = paths.filter((p) => !/^dist\/[\w/]+\.(js|d\.ts)$/.test(p));
  assert.deepEqual(outside.sort(), ["LICENSE", "README.md", "package.json"]);
  assert.ok(pack.unpackedSize < 1 << 20, `${pack.unpackedSize} bytes`);
});

test("the package can be imported by its name, and its entries have what README says", async () => {
  const [client, worker, testing] = await Promise.all(
    ["", "/worker", "/testing"].map((entry) => import(`@fermata-io/fermata${entry}`) as Promise<object>),
  );
  for (const name of ["Fermata", "cron", "every", "once", "json", "fileToken", "FermataError"])
    assert.ok(name in client!, name);
  for (const name of ["Worker", "Permanent", "RetryAfter", "AttemptEnded", "shutdownSignal"])
    assert.ok(name in worker!, name);
  assert.ok("task" in testing!);
});

test("the documents install and import the package by its name", async () => {
  const { name, exports } = JSON.parse(await readFile(`${root}package.json`, "utf8")) as {
    name: string;
    exports: Record<string, unknown>;
  };
  const entries = new Set(Object.keys(exports).map((entry) => name + entry.slice(1)));
  for (const path of [`${root}README.md`, `${repository}docs/how-to/typescript.md`, `${repository}docs/workers.md`]) {
    const text = await readFile(path, "utf8");
    for (const [line, from] of text.matchAll(/^import .* from "([^".][^"]*)"/gm)) {
      assert.ok(entries.has(from!) || from!.startsWith("node:"), `${path}: ${line}`);
    }
    assert.doesNotMatch(text, /npm (install|i|add) (.* )?fermata(@|\s|$)/m, path);
  }
  const workflow = await readFile(`${repository}.github/workflows/publish-npm.yml`, "utf8");
  assert.ok(workflow.includes(name), "the workflow names another package");
});

test("the lock file has hashes and names no registry", async () => {
  const lock = JSON.parse(await readFile(`${root}package-lock.json`, "utf8")) as {
    packages: Record<string, { integrity?: string; resolved?: string }>;
  };
  for (const [path, entry] of Object.entries(lock.packages)) {
    assert.equal(entry.resolved, undefined, path);
    if (path !== "") assert.match(entry.integrity ?? "", /^sha512-/, path);
  }
});
