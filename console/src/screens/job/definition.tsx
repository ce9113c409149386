import type { Job } from "../../api/generated";
import { CopyButton } from "../../components/copy";

/** Definition is the job as it is defined: without its state, as JSON of the API. */
export function Definition({ job }: { job: Job }) {
  const text = JSON.stringify(definitionOf(job), null, 2);
  return (
    <>
      <details>
        <summary>Show all fields</summary>
        <div class="command"><pre tabIndex={0}>{text}</pre><CopyButton text={text} label="Copy" /></div>
      </details>
      <Payload job={job} />
    </>
  );
}

function definitionOf(job: Job): Partial<Job> {
  const { status: _status, etag: _etag, payload, ...rest } = job;
  const value = payloadOf(payload);
  return value?.json === undefined ? { ...rest, ...(payload ? { payload } : {}) } : { ...rest, payloadJson: value.json };
}

interface PayloadText {
  text?: string;
  json?: unknown;
  size: number;
}

/** payloadOf reads a payload as text and, if it is JSON, as its value. */
export function payloadOf(base64: string | undefined): PayloadText | undefined {
  if (!base64) return undefined;
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    try {
      return { text, json: JSON.parse(text), size: bytes.length };
    } catch {
      return { text, size: bytes.length };
    }
  } catch {
    return { size: bytes.length };
  }
}

function Payload({ job }: { job: Job }) {
  const value = payloadOf(job.payload);
  if (job.payloadSealed) return <p class="soft">The payload is sealed{job.payloadKeyId ? ` with key ${job.payloadKeyId}` : ""}.</p>;
  if (!value) return <p class="soft">No payload.</p>;
  if (value.text === undefined) return <p class="soft">The payload has {value.size} bytes, which are not text.</p>;
  return (
    <details>
      <summary>Payload, {value.size} bytes</summary>
      <pre tabIndex={0} class="block">{value.json === undefined ? value.text : JSON.stringify(value.json, null, 2)}</pre>
    </details>
  );
}
