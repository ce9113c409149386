// Cluster: nodes with their shards, take-overs as they happen, workers.
import { call } from "../../api/client";
import type { ListNodesResponse, LostNode, Node, Shard, Worker } from "../../api/generated";
import { anyNamespace, namespace } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { Card, Sentence } from "../../components/card";
import { Empty, Loaded } from "../../components/messages";
import { State } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { Ago } from "../../components/time";
import { formatSpan, parseDuration } from "../../format/duration";
import { formatCount, plural } from "../../format/text";
import { useQuery } from "../../live/query";
import { stateOfLostNode, stateOfNode } from "../overview/cluster";
import { ShardMap } from "./shard_map";

const nodeColumns: Column<Node>[] = [
  { title: "Node", cell: (n) => <bdi class="id">{n.name}</bdi> },
  { title: "State", cell: (n) => <State {...stateOfNode(n)} /> },
  { title: "Shards", numeric: true, cell: (n) => n.shardsHeld ?? 0 },
  { title: "Workers", numeric: true, cell: (n) => n.workers ?? 0 },
  { title: "Version", minor: 1, cell: (n) => n.version },
  { title: "Started", minor: 1, cell: (n) => <Ago at={n.startTime} /> },
  { title: "Address", minor: 2, cell: (n) => <span class="id">{n.grpcAddress}</span> },
  { title: "Durability", minor: 2, cell: (n) => n.durability },
];

const lostNodeColumns: Column<LostNode>[] = [
  { title: "Node", cell: (n) => <bdi class="id">{n.name}</bdi> },
  { title: "State", cell: (n) => <State {...stateOfLostNode(n)} /> },
  { title: "Version", minor: 1, cell: (n) => n.version },
  { title: "Address", minor: 2, cell: (n) => <span class="id">{n.grpcAddress}</span> },
];

const workerColumns: Column<Worker>[] = [
  { title: "Worker", cell: (w) => <bdi class="id">{w.workerId}</bdi> },
  { title: "State", cell: (w) => <State {...(w.draining ? { tone: "hold", text: "stops" } : { tone: "ok", text: "works" })} /> },
  { title: "Slots", numeric: true, cell: (w) => `${w.running ?? 0} of ${w.slots ?? 0}` },
  { title: "Queues", cell: (w) => <bdi>{(w.queues ?? []).join(", ")}</bdi> },
  { title: "Namespace", minor: 1, cell: (w) => <bdi>{w.namespace}</bdi> },
  { title: "Node", minor: 1, cell: (w) => <bdi>{w.node}</bdi> },
  { title: "Version", minor: 2, cell: (w) => w.version },
  { title: "Identity", minor: 2, cell: (w) => <bdi>{w.identity}</bdi> },
  { title: "Connected", minor: 1, cell: (w) => <Ago at={w.connectTime} /> },
];

function Cluster() {
  const nodes = useQuery("nodes", (signal) => call("ListNodes", {}, undefined, { signal }), 2000);
  const shards = useQuery("shards", (signal) => call("ListShards", {}, undefined, { signal }), 2000);
  const workers = useQuery("workers", (signal) => call("ListWorkers", {}, undefined, { signal }), 3000);
  const ns = namespace.value;
  return (
    <>
      <h1>Cluster</h1>
      <Sentence>{sentenceOf(nodes.data.value, shards.data.value?.shards)}</Sentence>
      <div class="stack">
        <Card title="Nodes">
          <Loaded query={nodes} what="The nodes">{(d) => <Table caption="Nodes" columns={nodeColumns} rows={d.nodes ?? []} keyOf={(n) => n.name ?? ""} />}</Loaded>
        </Card>
        {(nodes.data.value?.lostNodes ?? []).length > 0 && (
          <Card title="Lost nodes" note="disappeared within the last ten minutes without leaving">
            <Table caption="Lost nodes" columns={lostNodeColumns} rows={nodes.data.value?.lostNodes ?? []} keyOf={(n) => n.name ?? ""} />
          </Card>
        )}
        <Card title="Shards" note="each square is one; outlined: taken over within the last minute">
          <Loaded query={shards} what="The shards">{(d) => <ShardMap shards={d.shards ?? []} nodes={nodes.data.value?.nodes ?? []} />}</Loaded>
        </Card>
        <Card title="Workers">
          <Loaded query={workers} what="The workers">
            {(d) => {
              const shown = (d.workers ?? []).filter((w) => ns === anyNamespace || w.namespace === ns);
              return shown.length === 0
                ? <Empty title="No worker is connected"><p>Jobs wait until one is: <code>worker --scheduler HOST:7070</code>, or a program with package worker.</p></Empty>
                : <Table caption="Workers" columns={workerColumns} rows={shown} keyOf={(w) => `${w.node}/${w.workerId}`} />;
            }}
          </Loaded>
        </Card>
      </div>
    </>
  );
}

function sentenceOf(list: ListNodesResponse | undefined, shards: Shard[] | undefined): string {
  if (!list || !shards) return "";
  const nodes = list.nodes ?? [];
  const unreachable = nodes.filter((n) => n.unreachable).map((n) => n.name);
  const lost = (list.lostNodes ?? []).map((n) => n.name);
  const free = shards.filter((s) => !s.holder).length;
  const lag = Math.max(0, ...shards.map((s) => parseDuration(s.lag)));
  const jobs = shards.reduce((n, s) => n + Number(s.jobs ?? 0), 0);
  return [
    lost.length > 0 ? `${plural(lost.length, "node")} disappeared without leaving: ${lost.join(", ")}.` : "",
    unreachable.length > 0 ? `${plural(unreachable.length, "node")} cannot be reached: ${unreachable.join(", ")}.` : `${plural(nodes.length, "node")} ${nodes.length === 1 ? "serves" : "serve"} ${plural(jobs, "job")} in ${plural(shards.length, "shard")}.`,
    free > 0 ? `${formatCount(free)} without a node.` : "Each shard has a node.",
    lag > 1000 ? `The longest lag of a shard is ${formatSpan(`${lag / 1000}s`)}.` : "",
  ].filter(Boolean).join(" ");
}

export const clusterScreen: Screen = { path: "cluster", title: () => "Cluster", nav: "Cluster", key: "c", view: Cluster };
