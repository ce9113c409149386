import type { LostNode, Node, Shard, Worker } from "../../api/generated";
import { listLink } from "../../app/routes";
import { Loaded } from "../../components/messages";
import { isBehind, ShardSquares, TakeoverText, useTakeovers } from "../../components/shards";
import { State, type StateWord } from "../../components/state";
import { formatDuration } from "../../format/duration";
import { plural } from "../../format/text";
import { second } from "../../live/clock";
import type { OverviewData } from ".";

/** stateOfNode is the state of a node in words. */
export function stateOfNode(n: Node): StateWord {
  if (n.unreachable) return { tone: "lost", text: "cannot be reached" };
  return n.draining ? { tone: "hold", text: "stops" } : { tone: "ok", text: "serves" };
}

/** stateOfLostNode says since when a node is lost. */
export const stateOfLostNode = (n: LostNode): StateWord =>
  ({ tone: "lost", text: `lost ${formatDuration(Math.max(0, second.value - Date.parse(n.lostTime ?? "")))} ago` });

/** Cluster shows the nodes with their shards and workers. */
export function Cluster({ data }: { data: OverviewData }) {
  const shards = data.shards.data.value?.shards ?? [];
  const takeovers = useTakeovers(shards);
  return (
    <Loaded query={data.nodes} what="Nodes">
      {(list) => (
        <>
          <table>
            <caption class="hidden">Nodes</caption>
            <thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col">Shards</th>
              <th scope="col" class="num">Workers</th></tr></thead>
            <tbody>
              {(list.nodes ?? []).map((n) => (
                <tr key={n.name}>
                  <th scope="row"><a class="id" href={listLink("cluster", {})}>{n.name}</a></th>
                  <td><State {...stateOfNode(n)} /></td>
                  <td><ShardSquares shards={shards.filter((s) => s.holder === n.name)} takeovers={takeovers} /></td>
                  <td class="num">{n.workers ?? 0}</td>
                </tr>
              ))}
              {(list.lostNodes ?? []).map((n) => (
                <tr key={`lost ${n.name}`}>
                  <th scope="row"><a class="id" href={listLink("cluster", {})}>{n.name}</a></th>
                  <td colSpan={3}><State {...stateOfLostNode(n)} /></td>
                </tr>
              ))}
            </tbody>
          </table>
          <TakeoverText takeovers={takeovers} />
          <p class="soft">{summaryOf(data.shards.data.value?.shards, data.workers.data.value?.workers)}</p>
        </>
      )}
    </Loaded>
  );
}

function summaryOf(shards: Shard[] | undefined, workers: Worker[] | undefined): string {
  const parts: string[] = [];
  if (shards) {
    const free = shards.filter((s) => !s.holder).length;
    const behind = shards.filter(isBehind).length;
    parts.push(`${plural(shards.length, "shard")}, ${free === 0 ? "each has a node" : `${free} without a node`}`);
    if (behind > 0) parts.push(`${behind} with overdue runs`);
  }
  if (workers) {
    const slots = workers.reduce((n, w) => n + (w.slots ?? 0), 0);
    parts.push(`${plural(workers.length, "worker")} with ${plural(slots, "slot")}`);
  }
  return parts.length > 0 ? `${parts.join("; ")}.` : "";
}
