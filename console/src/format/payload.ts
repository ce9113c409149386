// Payloads, which the API sends in base64.

/** payloadText is a payload as text; undefined if it is none. */
export function payloadText(base64: string): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
  } catch {
    return undefined;
  }
}

/** payloadOfText is a text as a payload. */
export function payloadOfText(text: string): string {
  let binary = "";
  for (const b of new TextEncoder().encode(text)) binary += String.fromCharCode(b);
  return btoa(binary);
}
