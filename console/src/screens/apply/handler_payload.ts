// Payloads of the handlers http and exec, byte for byte as the command line writes them: otherwise the next apply of
// the same file from there would be a change.

type Fields = Record<string, unknown>;

const order: Record<"http" | "exec", { names: string[]; required: string }> = {
  http: {
    names: ["method", "url", "headers", "body", "body_base64", "expected_status", "follow_redirects", "timeout", "max_body_bytes"], required: "url",
  },
  exec: { names: ["argv", "env", "dir", "stdin"], required: "argv" },
};

const isEmpty = (v: unknown) => v === null || v === undefined || v === "" || typeof v === "object" && Object.keys(v).length === 0;

function sorted(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value as Fields).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** encodeHandlerPayload writes a payload. What it does not know it leaves to the nodes, which refuse it. */
export function encodeHandlerPayload(handler: "http" | "exec", value: Fields): string {
  const { names, required } = order[handler];
  const given = { ...value };
  if (handler === "http" && isEmpty(given["method"]) && !(isEmpty(given["body"]) && isEmpty(given["body_base64"]))) given["method"] = "POST";
  const out: Fields = {};
  for (const name of names) if (name === required ? name in given : !isEmpty(given[name])) out[name] = sorted(given[name]);
  for (const name of Object.keys(given)) if (!names.includes(name)) out[name] = given[name];
  return JSON.stringify(out).replace(/[<>&\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
