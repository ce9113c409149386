import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { createSecureServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Connection, tlsFiles } from "../src/net/connection.js";

let dir: string;
const path = (name: string) => join(dir, name);

/** makeCertificate makes a certificate that signs itself, and its key. */
function makeCertificate(name: string, host: string): void {
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  const names = ["-subj", `/CN=${name}`, "-addext", `subjectAltName=${host}`];
  const files = ["-keyout", path(`${name}.key`), "-out", path(`${name}.crt`)];
  execFileSync("openssl", ["req", "-x509", "-days", "2", ...curve, ...names, ...files], { stdio: "pipe" });
}

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "fermata-tls-"));
  makeCertificate("node", "IP:127.0.0.1");
  makeCertificate("other", "IP:127.0.0.1");
  makeCertificate("elsewhere", "DNS:node.example");
});

after(() => rm(dir, { recursive: true }));

/** withServer serves with a certificate. */
async function withServer(name: string, use: (address: string) => Promise<void>): Promise<void> {
  const [cert, key] = await Promise.all([readFile(path(`${name}.crt`)), readFile(path(`${name}.key`))]);
  const server = createSecureServer({ cert, key });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.close();
  }
}

const timeoutMs = 30_000;

test("files of TLS are read for each connection, and a wrong authority is refused", () =>
  withServer("node", async (address) => {
    const tls = tlsFiles({ ca: path("ca.crt") });
    await assert.rejects(Connection.open(address, { tls, timeoutMs }), { code: "ENOENT" });
    await copyFile(path("other.crt"), path("ca.crt"));
    await assert.rejects(Connection.open(address, { tls, timeoutMs }), /self-signed certificate/);
    await copyFile(path("node.crt"), path("ca.crt"));
    (await Connection.open(address, { tls, timeoutMs })).destroy();
    assert.throws(() => tlsFiles({ CA: "x" } as never), /no option "CA", did you mean "ca"/);
  }));

test("a certificate has to be for the host of the address, or for servername", () =>
  withServer("elsewhere", async (address) => {
    const files = { ca: path("elsewhere.crt") };
    await assert.rejects(Connection.open(address, { tls: tlsFiles(files), timeoutMs }), /does not match/);
    const tls = tlsFiles({ ...files, servername: "node.example" });
    (await Connection.open(address, { tls, timeoutMs })).destroy();
  }));
