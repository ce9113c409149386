import type { Difference } from "../format/difference";
import { Table, type Column } from "./table";

const Value = ({ text }: { text: string | undefined }) =>
  text === undefined ? <span class="soft">not set</span> : <bdi class="id">{text.slice(0, 2000)}</bdi>;

/** ChangeTable shows the fields in which two definitions differ, with both values. */
export function ChangeTable({ caption, from, to, changes }: { caption: string; from: string; to: string; changes: Difference[] }) {
  const columns: Column<Difference>[] = [
    { title: "Field", cell: (d) => <code>{d.path}</code> },
    { title: from, cell: (d) => <Value text={d.from} /> },
    { title: to, cell: (d) => <Value text={d.to} /> },
  ];
  return <Table caption={caption} columns={columns} rows={changes} keyOf={(d) => d.path} />;
}
