import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

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
    ["fermata", "fermata/worker", "fermata/testing"].map((name) => import(name) as Promise<object>),
  );
  for (const name of ["Fermata", "cron", "every", "once", "json", "fileToken", "FermataError"])
    assert.ok(name in client!, name);
  for (const name of ["Worker", "Permanent", "RetryAfter", "AttemptEnded", "shutdownSignal"])
    assert.ok(name in worker!, name);
  assert.ok("task" in testing!);
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
