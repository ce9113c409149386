// The difference of two definitions, field by field.
import type { Job } from "../api/generated";
import { payloadText } from "../format/payload";

interface Row {
  path: string;
  before: string | undefined;
  after: string | undefined;
}

const ignored = /^(name|status|etag|createTime|updateTime|generation|warnings|payloadKeyId|payloadSize)\b|\.sources\b/;

function leaves(value: unknown, path: string, into: Map<string, string>): void {
  if (value === undefined || value === null || ignored.test(path)) return;
  if (typeof value === "object" && !Array.isArray(value)) {
    Object.entries(value).forEach(([k, v]) => leaves(v, path ? `${path}.${k}` : k, into));
    return;
  }
  const text = path === "payload" ? payloadText(String(value)) ?? `base64 ${String(value)}` : undefined;
  into.set(path, text ?? (typeof value === "string" ? value : JSON.stringify(value)));
}

/** diffOf are the values that differ. */
export function diffOf(before: Job | undefined, after: Job | undefined): Row[] {
  const from = new Map<string, string>(), to = new Map<string, string>();
  leaves(before ?? {}, "", from);
  leaves(after ?? {}, "", to);
  return [...new Set([...from.keys(), ...to.keys()])]
    .filter((path) => from.get(path) !== to.get(path))
    .map((path) => ({ path, before: from.get(path), after: to.get(path) }));
}

/** FieldDiff shows the values that differ. */
export function FieldDiff({ before, after, caption }: { before: Job | undefined; after: Job | undefined; caption: string }) {
  const rows = diffOf(before, after);
  if (rows.length === 0) return null;
  return (
    <div class="table" tabIndex={0} role="group" aria-label={caption}>
      <table class="diff" aria-label={caption}>
        <thead><tr><th scope="col">Field</th>{before && <th scope="col">Before</th>}<th scope="col">After</th></tr></thead>
        <tbody>
          {rows.map((r) => (
            <tr key={r.path}>
              <th scope="row"><code>{r.path}</code></th>
              {before && <td>{r.before === undefined ? <span class="soft">not set</span> : <del><bdi>{r.before}</bdi></del>}</td>}
              <td>{r.after === undefined ? <span class="soft">not set</span> : <ins><bdi>{r.after}</bdi></ins>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
