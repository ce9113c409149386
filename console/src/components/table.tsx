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
  /** isWindowed: only the rows on the screen are rendered. For long lists that change often. Each row has one line. */
  isWindowed?: boolean;
}

/** Table shows rows. The first column is the head of each row; its link is what the arrow keys move to. */
export function Table<T>(p: TableProps<T>) {
  const [isHeld, setIsHeld] = useState(false);
  const held = useHeldRows(p.rows, p.keyOf, isHeld);
  const scroll = useRef<HTMLDivElement>(null);
  const shown = useWindow(scroll, held.rows.length, p.isWindowed ?? false);
  useEffect(() => focusableIfWide(scroll.current!, p.caption), [p.caption]);
  return (
    <div class={p.isWindowed ? "table windowed" : "table"} ref={scroll}>
      <table aria-rowcount={p.isWindowed ? held.rows.length + 1 : undefined}>
        <caption class="hidden">{p.caption}</caption>
        <thead>
          <tr>
            {p.selected && <th scope="col" class="pick"><SelectAll rows={p.rows} keyOf={p.keyOf} selected={p.selected} /></th>}
            {p.columns.map((c) => <Head key={c.title} column={c} order={p.order} onOrder={p.onOrder} />)}
          </tr>
        </thead>
        <Spacer rows={shown.from} height={shown.height} columns={p.columns.length} />
        <tbody
          onPointerEnter={() => setIsHeld(true)}
          onPointerLeave={(e) => { if (!hasFocus(e.currentTarget)) setIsHeld(false); }}
          onFocusIn={() => setIsHeld(true)}
          onFocusOut={(e) => { if (!e.currentTarget.contains(e.relatedTarget as Node | null)) setIsHeld(false); }}
          onKeyDown={moveBetweenRows}
        >
          {held.rows.slice(shown.from, shown.to).map(({ key, row, isGone }, i) => (
            // A row on the screen of a windowed table keeps its elements: their texts change.
            <tr key={p.isWindowed ? shown.from + i : key} class={isGone ? "gone" : undefined}
              aria-rowindex={p.isWindowed ? shown.from + i + 2 : undefined}>
              {p.selected && <td class="pick"><SelectRow id={key} selected={p.selected} /></td>}
              {p.columns.map((c, i) => {
                const name = classOf(c);
                return i === 0
                  ? <th key={c.title} scope="row" class={name}>{c.cell(row)}{isGone && <span class="hidden"> no longer listed</span>}</th>
                  : <td key={c.title} class={name}>{c.cell(row)}</td>;
              })}
            </tr>
          ))}
        </tbody>
        <Spacer rows={held.rows.length - shown.to} height={shown.height} columns={p.columns.length} />
      </table>
      {held.waiting > 0 && <p class="waiting soft" role="status">
        {plural(held.waiting, "row")} moved or new; shown when the pointer leaves the table.</p>}
    </div>
  );
}

/** Spacer takes the place of rows that are not rendered. */
function Spacer({ rows, height, columns }: { rows: number; height: number; columns: number }) {
  if (rows <= 0) return null;
  return <tbody class="spacer" aria-hidden="true"><tr style={{ height: `${rows * height}px` }}><td colSpan={columns} /></tr></tbody>;
}

interface Window {
  from: number;
  /** to is the first row after the window. */
  to: number;
  /** height is that of a row. */
  height: number;
}

/** step is how many rows the window moves at once, and how many it has beyond the screen. */
const step = 10;

/** useWindow are the rows of a table that are on the screen, with some before and after them. */
function useWindow(table: { current: HTMLElement | null }, count: number, isOn: boolean): Window {
  const [w, setWindow] = useState<Window>({ from: 0, to: 5 * step, height: 0 });
  useEffect(() => {
    if (!isOn) return undefined;
    let frame = 0;
    const measure = () => {
      frame = 0;
      const row = table.current?.querySelector("tbody:not(.spacer) tr");
      if (!row) return;
      const height = row.getBoundingClientRect().height;
      const top = table.current!.querySelector("thead")!.getBoundingClientRect().bottom;
      const from = Math.max(0, Math.floor(-top / height / step) - 1) * step;
      const to = (Math.ceil((innerHeight - top) / height / step) + 1) * step;
      setWindow((was) => (was.from === from && was.to === to && was.height === height ? was : { from, to, height }));
    };
    const changed = () => { frame ||= requestAnimationFrame(measure); };
    changed();
    addEventListener("scroll", changed, { passive: true });
    addEventListener("resize", changed);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", changed);
      removeEventListener("resize", changed);
    };
  }, [isOn, count > 0]);
  if (!isOn) return { from: 0, to: count, height: 0 };
  return { from: Math.min(w.from, Math.max(0, count - step)), to: Math.min(count, Math.max(w.to, step)), height: w.height };
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
