import type { Node, Shard, Worker } from "../../api/generated";
import { listLink } from "../../app/routes";
import { Loaded } from "../../components/messages";
import { State, type StateWord } from "../../components/state";
import { Ago } from "../../components/time";
import { plural } from "../../format/text";
import type { OverviewData } from ".";

/** stateOfNode is the state of a node in words. */
export function stateOfNode(n: Node): StateWord {
  if (n.unreachable) return { tone: "lost", text: "cannot be reached" };
  return n.draining ? { tone: "hold", text: "stops" } : { tone: "ok", text: "serves" };
}

/** Cluster shows the nodes with their shards and workers. */
export function Cluster({ data }: { data: OverviewData }) {
  return (
    <Loaded query={data.nodes} what="Nodes">
      {(list) => (
        <>
          <table>
            <caption class="hidden">Nodes</caption>
            <thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col" class="num">Shards</th>
              <th scope="col" class="num">Workers</th><th scope="col" class="minor1">Started</th></tr></thead>
            <tbody>
              {(list.nodes ?? []).map((n) => (
                <tr key={n.name}>
                  <th scope="row"><a class="id" href={listLink("cluster", {})}>{n.name}</a></th>
                  <td><State {...stateOfNode(n)} /></td>
                  <td class="num">{n.shardsHeld ?? 0}</td>
                  <td class="num">{n.workers ?? 0}</td>
                  <td class="minor1"><Ago at={n.startTime} /></td>
                </tr>
              ))}
            </tbody>
          </table>
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
    parts.push(`${plural(shards.length, "shard")}, ${free === 0 ? "each has a node" : `${free} without a node`}`);
  }
  if (workers) {
    const slots = workers.reduce((n, w) => n + (w.slots ?? 0), 0);
    parts.push(`${plural(workers.length, "worker")} with ${plural(slots, "slot")}`);
  }
  return parts.length > 0 ? `${parts.join("; ")}.` : "";
}
