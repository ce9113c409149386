import { isIP } from "node:net";

/** Endpoint is where a node listens: a host with a port, or a socket. */
export type Endpoint = { host: string; port: number } | { path: string };

/** parseAddress parses host:port, [v6]:port, dns:///host:port or unix:path. It throws for anything else. */
export function parseAddress(address: string): Endpoint {
  if (address.startsWith("unix:")) {
    return { path: address.slice("unix:".length).replace(/^\/\/(?=\/)/, "") };
  }
  const plain = address.replace(/^(dns|passthrough):\/\/\//, "");
  const split = splitHostPort(plain);
  if (!split) throw new TypeError(`address ${JSON.stringify(address)} is not host:port`);
  return split;
}

/** listAddresses returns addresses that are an array, or a text with commas. It throws for invalid ones. */
export function listAddresses(input: unknown): string[] {
  const list = typeof input === "string" ? input.split(",").map((address) => address.trim()) : input;
  if (list === undefined) throw new TypeError("addresses is missing: want host:port of one or more nodes");
  if (!Array.isArray(list) || !list.every((address) => typeof address === "string")) {
    throw new TypeError("addresses: want a text or an array of texts, host:port of one or more nodes");
  }
  if (list.length === 0) throw new TypeError("no addresses: want host:port of one or more nodes");
  for (const address of list) parseAddress(address);
  return [...list];
}

function splitHostPort(text: string): { host: string; port: number } | undefined {
  const match = /^(?:\[([^\][]+)\]|([^\][:/]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (!match || port < 1 || port > 65535) return undefined;
  return { host: (match[1] ?? match[2])!, port };
}

/** hostOf returns the host of an address, which its certificate has to name. */
export function hostOf(address: string): string {
  const endpoint = parseAddress(address);
  return "host" in endpoint ? endpoint.host : "localhost";
}

const maxAddressLength = 256;

/** isAdvertisable reports whether a node may advertise the text as an address: host:port, and no other form. */
export function isAdvertisable(text: string): boolean {
  return (
    text.length <= maxAddressLength &&
    /^(?:[A-Za-z0-9._-]+|\[[A-Za-z0-9._:%-]+\]):[1-9]\d{0,4}$/.test(text) &&
    splitHostPort(text) !== undefined
  );
}

/** isLoopback reports whether an address is on this host, so that a token can be sent there without TLS. */
export function isLoopback(address: string): boolean {
  if (address.startsWith("unix:")) return true;
  let host: string;
  try {
    host = hostOf(address);
  } catch {
    return false;
  }
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

/** requireProtectedToken throws if a token would leave this host without TLS. */
export function requireProtectedToken(addresses: readonly string[], secure: boolean, hasToken: boolean): void {
  const open = hasToken && !secure ? addresses.find((a) => !isLoopback(a)) : undefined;
  if (open !== undefined) throw new TypeError(`a token for ${open}, which is beyond this host, needs TLS`);
}
