import { readFile } from "node:fs/promises";

/** TokenSource is a bearer token, or a function that returns the current one. */
export type TokenSource = string | (() => string | Promise<string>);

/** readToken returns the token for one call. */
export async function readToken(source: TokenSource): Promise<string> {
  const token = typeof source === "string" ? source : await source();
  if (!isToken(token)) throw new TypeError("the token is empty, or has characters that no token has");
  return token;
}

function isToken(text: string): boolean {
  return /^[!-~]+$/.test(text);
}

const rereadAfter = 50;

/** tokenFile returns a token source that reads a file, and reads it again when it is needed after 50 ms. If the
 * file cannot be read any more, or has no token while it is being written, the last token stays in use. */
export function tokenFile(path: string): () => Promise<string> {
  let token = "";
  let readAt = -Infinity;
  return async () => {
    const now = performance.now();
    if (now - readAt < rereadAfter) return token;
    try {
      const text = (await readFile(path, "utf8")).trim();
      if (token === "" || isToken(text)) token = text;
      readAt = now;
    } catch (error) {
      if (token === "") throw error;
    }
    return token;
  };
}
