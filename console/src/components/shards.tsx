// The shards of a node as squares, and which of them have moved.
import { useRef } from "preact/hooks";
import type { Shard } from "../api/generated";
import { formatDuration, formatSpan, parseDuration } from "../format/duration";
import { plural } from "../format/text";
import { second, serverNow } from "../live/clock";

/** recent is for how long a take-over is marked. */
const recent = 60_000;

/** Takeover is a shard that another node holds since this page was opened. */
export interface Takeover {
  shard: number;
  to: string;
  /** since is when this page saw the change. */
  since: number;
}

interface Holder {
  name: string;
  /** since is when this page saw the change; 0: it was so from the beginning. */
  since: number;
}

/** useTakeovers are the shards that moved within the last minute, while this page was open. */
export function useTakeovers(shards: Shard[]): Takeover[] {
  const holders = useRef(new Map<number, Holder>());
  const moved: Takeover[] = [];
  for (const s of shards) {
    const id = s.shard ?? 0;
    const known = holders.current.get(id);
    const name = s.holder ?? "";
    if (!known || known.name !== name) holders.current.set(id, { name, since: known ? serverNow() : 0 });
    const since = holders.current.get(id)!.since;
    if (since > 0 && second.value - since < recent) moved.push({ shard: id, to: name, since });
  }
  return moved;
}

/** ShardSquares are the shards that one node holds; with isLost, those that no node holds. */
export function ShardSquares({ shards, takeovers, isLost }: { shards: Shard[]; takeovers: Takeover[]; isLost?: boolean }) {
  const moved = new Set(takeovers.map((t) => t.shard));
  return (
    <span class="squares" role="img" aria-label={labelOf(shards)}>
      {shards.map((s) => (
        <i key={s.shard} class={`${isLost ? "bad" : isBehind(s) ? "hold" : "wait"}${moved.has(s.shard ?? 0) ? " moved" : ""}`} title={titleOf(s)} />
      ))}
    </span>
  );
}

/** TakeoverText says how many shards moved, and when. */
export function TakeoverText({ takeovers }: { takeovers: Takeover[] }) {
  if (takeovers.length === 0) return null;
  const last = Math.max(...takeovers.map((t) => t.since));
  return (
    <p role="status">{plural(takeovers.length, "shard")} moved within the last minute, the last one {formatDuration(second.value - last)} ago
      {" "}to <bdi>{takeovers.at(-1)!.to || "no node"}</bdi>.</p>
  );
}

/** isBehind: a run of the shard has been due for more than a second. */
export const isBehind = (s: Shard) => parseDuration(s.lag) > 1000;

function labelOf(shards: Shard[]): string {
  const late = shards.filter(isBehind).length;
  return `${plural(shards.length, "shard")} with ${plural(shards.reduce((n, s) => n + Number(s.jobs ?? 0), 0), "job")}${late > 0 ? `, ${late} behind` : ""}`;
}

const titleOf = (s: Shard) => `shard ${s.shard ?? 0}: ${plural(s.jobs, "job")}${parseDuration(s.lag) > 0 ? `, ${formatSpan(s.lag)} behind` : ""}`;
