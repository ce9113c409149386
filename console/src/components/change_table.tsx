import type { Difference } from "../format/difference";
import { Table, type Column } from "./table";

const maxShown = 2000;

/** Value is one side of a difference. If neither side has a value, the values may not be shown: a payload is sealed. */
function Value({ text, other }: { text: string | undefined; other: string | undefined }) {
  if (text === undefined) return <span class="soft">{other === undefined ? "not shown" : "not set"}</span>;
  return <bdi class="id">{text.slice(0, maxShown)}{text.length > maxShown && "…"}</bdi>;
}

/** ChangeTable shows the fields in which two definitions differ, with both values. */
export function ChangeTable({ caption, from, to, changes }: { caption: string; from: string; to: string; changes: Difference[] }) {
  const columns: Column<Difference>[] = [
    { title: "Field", cell: (d) => <code>{d.path}</code> },
    { title: from, cell: (d) => <Value text={d.from} other={d.to} /> },
    { title: to, cell: (d) => <Value text={d.to} other={d.from} /> },
  ];
  return <Table caption={caption} columns={columns} rows={changes} keyOf={(d) => d.path} />;
}
