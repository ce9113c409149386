// The shards by the node that holds them.
import { useRef } from "preact/hooks";
import type { Node, Shard } from "../../api/generated";
import { formatDuration, formatSpan, parseDuration } from "../../format/duration";
import { plural } from "../../format/text";
import { second, serverNow } from "../../live/clock";

/** recent is for how long a take-over is marked. */
const recent = 60_000;

interface Holder {
  name: string;
  /** since is when this page saw the change; 0: it was so from the beginning. */
  since: number;
}

/** ShardMap has a row of squares for each node, and one for shards without a node. */
export function ShardMap({ shards, nodes }: { shards: Shard[]; nodes: Node[] }) {
  const holders = useRef(new Map<number, Holder>());
  const moved: Array<{ shard: number; to: string; since: number }> = [];
  for (const s of shards) {
    const id = s.shard ?? 0;
    const known = holders.current.get(id);
    const name = s.holder ?? "";
    if (!known || known.name !== name) holders.current.set(id, { name, since: known ? serverNow() : 0 });
    const since = holders.current.get(id)!.since;
    if (since > 0 && second.value - since < recent) moved.push({ shard: id, to: name, since });
  }
  const names = [...new Set([...nodes.map((n) => n.name ?? ""), ...shards.map((s) => s.holder ?? "")])].sort((a, b) => (a === "" ? 1 : b === "" ? -1 : a.localeCompare(b)));
  const isMoved = new Set(moved.map((m) => m.shard));
  return (
    <>
      <table class="shards">
        <caption class="hidden">Shards by node</caption>
        <tbody>
          {names.map((name) => {
            const held = shards.filter((s) => (s.holder ?? "") === name);
            if (name === "" && held.length === 0) return null;
            return (
              <tr key={name}>
                <th scope="row">{name ? <bdi class="id">{name}</bdi> : <span class="state bad triangle">no node</span>}</th>
                <td class="num">{held.length}</td>
                <td>
                  <span class="squares" role="img" aria-label={labelOf(held)}>
                    {held.map((s) => <i key={s.shard} class={`${name === "" ? "bad" : parseDuration(s.lag) > 1000 ? "hold" : "wait"}${isMoved.has(s.shard ?? 0) ? " moved" : ""}`} title={titleOf(s)} />)}
                  </span>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {moved.length > 0 && (
        <p role="status">{plural(moved.length, "shard")} moved within the last minute, the last one {formatDuration(second.value - Math.max(...moved.map((m) => m.since)))} ago
          {" "}to <bdi>{moved.at(-1)!.to || "no node"}</bdi>.</p>
      )}
    </>
  );
}

function labelOf(shards: Shard[]): string {
  const late = shards.filter((s) => parseDuration(s.lag) > 1000).length;
  return `${plural(shards.length, "shard")} with ${plural(shards.reduce((n, s) => n + Number(s.jobs ?? 0), 0), "job")}${late > 0 ? `, ${late} behind` : ""}`;
}

const titleOf = (s: Shard) => `shard ${s.shard ?? 0}: ${plural(s.jobs, "job")}${parseDuration(s.lag) > 0 ? `, ${formatSpan(s.lag)} behind` : ""}`;
