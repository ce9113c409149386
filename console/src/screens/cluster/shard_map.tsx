// The shards by the node that holds them.
import type { Node, Shard } from "../../api/generated";
import { ShardSquares, TakeoverText, useTakeovers } from "../../components/shards";

/** ShardMap has a row of squares for each node, and one for shards without a node. */
export function ShardMap({ shards, nodes }: { shards: Shard[]; nodes: Node[] }) {
  const takeovers = useTakeovers(shards);
  const names = [...new Set([...nodes.map((n) => n.name ?? ""), ...shards.map((s) => s.holder ?? "")])]
    .sort((a, b) => (a === "" ? 1 : b === "" ? -1 : a.localeCompare(b)));
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
                <td><ShardSquares shards={held} takeovers={takeovers} isLost={name === ""} /></td>
              </tr>
            );
          })}
        </tbody>
      </table>
      <TakeoverText takeovers={takeovers} />
    </>
  );
}
