// The table of all lists. While the pointer or the focus is in it, rows keep their places.
import type { ComponentChildren } from "preact";
import type { Signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { plural } from "../format/text";

/** Column is a column of a table. */
export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** numeric: aligned at the right. */
  numeric?: boolean;
  /** minor: left out where there is little room; 2 before 1. */
  minor?: 1 | 2;
  /** order is the value of the order that this column stands for. */
  order?: string;
}

export interface TableProps<T> {
  /** caption names the table for screen readers. */
  caption: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string;
  /** order is the current one; onOrder makes the heads of columns buttons. */
  order?: string;
  onOrder?: (order: string) => void;
  /** selected are the keys of the rows that are chosen; unset: rows cannot be chosen. */
  selected?: Signal<Set<string>>;
}

/** Table shows rows. The first column is the head of each row; its link is what the arrow keys move to. */
export function Table<T>(p: TableProps<T>) {
  const [isHeld, setIsHeld] = useState(false);
  const held = useHeldRows(p.rows, p.keyOf, isHeld);
  const scroll = useRef<HTMLDivElement>(null);
  useEffect(() => focusableIfWide(scroll.current!, p.caption), [p.caption]);
  return (
    <div class="table" ref={scroll}>
      <table>
        <caption class="hidden">{p.caption}</caption>
        <thead>
          <tr>
            {p.selected && <th scope="col" class="pick"><SelectAll rows={p.rows} keyOf={p.keyOf} selected={p.selected} /></th>}
            {p.columns.map((c) => <Head key={c.title} column={c} order={p.order} onOrder={p.onOrder} />)}
          </tr>
        </thead>
        <tbody
          onPointerEnter={() => setIsHeld(true)}
          onPointerLeave={(e) => { if (!hasFocus(e.currentTarget)) setIsHeld(false); }}
          onFocusIn={() => setIsHeld(true)}
          onFocusOut={(e) => { if (!e.currentTarget.contains(e.relatedTarget as Node | null)) setIsHeld(false); }}
          onKeyDown={moveBetweenRows}
        >
          {held.rows.map(({ key, row, isGone }) => (
            <tr key={key} class={isGone ? "gone" : undefined}>
              {p.selected && <td class="pick"><SelectRow id={key} selected={p.selected} /></td>}
              {p.columns.map((c, i) => {
                const name = classOf(c);
                return i === 0
                  ? <th key={c.title} scope="row" class={name}>{c.cell(row)}</th>
                  : <td key={c.title} class={name}>{c.cell(row)}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {held.waiting > 0 && <p class="waiting soft" role="status">
        {plural(held.waiting, "row")} moved or new; shown when the pointer leaves the table.</p>}
    </div>
  );
}

/** focusableIfWide lets the keyboard scroll an element that is wider than its place. */
function focusableIfWide(e: HTMLElement, name: string): () => void {
  const observer = new ResizeObserver(() => {
    const isWide = e.scrollWidth > e.clientWidth;
    for (const [key, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", name]] as const) {
      if (isWide) e.setAttribute(key, value);
      else e.removeAttribute(key);
    }
  });
  observer.observe(e);
  return () => observer.disconnect();
}

const hasFocus = (e: HTMLElement) => e.contains(document.activeElement);

const classOf = (c: Column<never>) => [c.numeric && "num", c.minor && `minor${c.minor}`].filter(Boolean).join(" ") || undefined;

function Head<T>({ column, order, onOrder }: { column: Column<T>; order?: string; onOrder?: (o: string) => void }) {
  const isCurrent = column.order !== undefined && column.order === order;
  const direction = column.order?.endsWith(" desc") ? "descending" : "ascending";
  return (
    <th scope="col" class={classOf(column as Column<never>)} aria-sort={isCurrent ? direction : undefined}>
      {column.order !== undefined && onOrder
        ? <button type="button" class="sort" onClick={() => onOrder(column.order!)}>{column.title}{isCurrent && (direction === "ascending" ? " ↑" : " ↓")}</button>
        : column.title}
    </th>
  );
}

interface HeldRow<T> {
  key: string;
  row: T;
  /** isGone: it is no longer in the list. */
  isGone: boolean;
}

/** useHeldRows keeps the order of rows while they are held, with their current content. */
function useHeldRows<T>(rows: T[], keyOf: (row: T) => string, isHeld: boolean): { rows: HeldRow<T>[]; waiting: number } {
  const shown = useRef<HeldRow<T>[]>([]);
  const current = new Map(rows.map((row) => [keyOf(row), row]));
  if (!isHeld || shown.current.length === 0) {
    shown.current = rows.map((row) => ({ key: keyOf(row), row, isGone: false }));
    return { rows: shown.current, waiting: 0 };
  }
  shown.current = shown.current.map(({ key, row }) => ({ key, row: current.get(key) ?? row, isGone: !current.has(key) }));
  const keys = new Set(shown.current.map((r) => r.key));
  const isMoved = (row: T, i: number) => !keys.has(keyOf(row)) || shown.current[i]?.key !== keyOf(row);
  return { rows: shown.current, waiting: rows.filter(isMoved).length };
}

function moveBetweenRows(e: KeyboardEvent): void {
  const step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
  const target = e.target as HTMLElement;
  if (step === 0 || target.closest("input:not([type=checkbox]), select, textarea")) return;
  const row = target.closest("tr");
  const next = step > 0 ? row?.nextElementSibling : row?.previousElementSibling;
  const column = [...(row?.cells ?? [])].findIndex((c) => c.contains(target));
  const cell = (next as HTMLTableRowElement | null)?.cells[column];
  const goal = cell?.querySelector<HTMLElement>("a, button, input") ?? next?.querySelector<HTMLElement>("th a");
  if (goal) {
    e.preventDefault();
    goal.focus();
  }
}

function SelectAll<T>({ rows, keyOf, selected }: { rows: T[]; keyOf: (row: T) => string; selected: Signal<Set<string>> }) {
  const keys = rows.map(keyOf);
  const count = keys.filter((k) => selected.value.has(k)).length;
  return (
    <input type="checkbox" aria-label="Select all rows of this page" checked={count > 0 && count === keys.length}
      indeterminate={count > 0 && count < keys.length}
      onChange={(e) => { selected.value = e.currentTarget.checked ? new Set(keys) : new Set(); }} />
  );
}

function SelectRow({ id, selected }: { id: string; selected: Signal<Set<string>> }) {
  const change = (isOn: boolean) => {
    const next = new Set(selected.value);
    if (isOn) next.add(id);
    else next.delete(id);
    selected.value = next;
  };
  return (
    <input type="checkbox" aria-label={`Select ${id.split("/").at(-1)}`} checked={selected.value.has(id)}
      onChange={(e) => change(e.currentTarget.checked)} />
  );
}
