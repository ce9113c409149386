import type { Warning } from "../../api/generated";

/** Warnings are what is valid but probably not meant. */
export function Warnings({ warnings }: { warnings: Warning[] | undefined }) {
  return <>{(warnings ?? []).map((w) => (
    <p key={`${w.field} ${w.text}`} class="warning"><span class="state hold square">Warning</span> {w.field && <code>{w.field}</code>} <bdi>{w.text}</bdi></p>
  ))}</>;
}
