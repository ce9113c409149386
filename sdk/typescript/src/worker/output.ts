/** Output is what a handler may return, or set as output: bytes, a text, or a value that is stored as JSON. */
export type Output = unknown;

const maxOutputBytes = 4096;
/** maxErrorBytes is the size of a stored error. */
export const maxErrorBytes = 512;

/** outputBytes returns an output as bytes, cut to what is stored. */
export function outputBytes(output: Output): Uint8Array | undefined {
  if (output === undefined || output === null) return undefined;
  if (output instanceof Uint8Array) return output.slice(0, maxOutputBytes);
  const text = typeof output === "string" ? output : (JSON.stringify(output) as string | undefined);
  if (text === undefined) return undefined;
  return clipUtf8(text, maxOutputBytes);
}

/** clipUtf8 encodes a text as UTF-8, without a part of a character at its end. */
export function clipUtf8(text: string, maxBytes: number): Uint8Array {
  const bytes = new Uint8Array(maxBytes);
  return bytes.subarray(0, new TextEncoder().encodeInto(text.slice(0, maxBytes), bytes).written);
}

/** clipText returns the start of a text that takes at most so many bytes. */
export function clipText(text: string, maxBytes: number): string {
  if (text.length * 3 <= maxBytes) return text.toWellFormed();
  return new TextDecoder().decode(clipUtf8(text, maxBytes));
}
