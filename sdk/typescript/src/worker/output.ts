/** Output is what a handler may return, or set as output: bytes, a text, or a value that is stored as JSON. */
export type Output = unknown;

const maxOutputBytes = 4096;
/** maxErrorBytes is the size of a stored error. */
export const maxErrorBytes = 512;

/** outputBytes returns an output as bytes, cut to what is stored. */
export function outputBytes(output: Output): Uint8Array | undefined {
  if (output === undefined || output === null) return undefined;
  // A copy, which slice of a Buffer is not: the handler may use the memory again.
  if (output instanceof Uint8Array) return new Uint8Array(output.subarray(0, maxOutputBytes));
  const text = typeof output === "string" ? output : (JSON.stringify(output) as string | undefined);
  if (text === undefined) return undefined;
  return clipUtf8(text, maxOutputBytes);
}

const encoder = new TextEncoder();
const scratch = new Uint8Array(maxOutputBytes);

/** clipUtf8 encodes a text as UTF-8, without a part of a character at its end: at most so many bytes, and no more than
 * maxOutputBytes. */
function clipUtf8(text: string, maxBytes: number): Uint8Array {
  const { written } = encoder.encodeInto(text.slice(0, maxBytes), scratch.subarray(0, maxBytes));
  return scratch.slice(0, written);
}

/** clipText returns the start of a text that takes at most so many bytes. */
export function clipText(text: string, maxBytes: number): string {
  if (text.length * 3 <= maxBytes) return text.toWellFormed();
  return new TextDecoder().decode(clipUtf8(text, maxBytes));
}
