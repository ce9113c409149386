// The heat map: a row for each hour, a cell for each minute.
import { useState } from "preact/hooks";
import type { LoadSeries } from "../../components/load_series";
import { formatCount, plural } from "../../format/text";
import { formatMinute, formatTime, zoneFor } from "../../format/time";
import { serverNow } from "../../live/clock";

const left = 52, top = 18, cell = 16, rowHeight = 15, perRow = 60;
const levels = 6;

interface Cell {
  index: number;
  row: number;
  column: number;
}

/** cellsOf puts each minute into the row of its hour in a zone. */
function cellsOf(series: LoadSeries, zone: string): Cell[] {
  let row = 0;
  let last = -1;
  return series.counts.map((_, index) => {
    const column = Number(formatMinute(series.start + index * series.step, zone).slice(3));
    if (column < last) row++;
    last = column;
    return { index, row, column };
  });
}

/** levelOf is the step of the scale of a count, 0 to levels. Its root: a herd must not hide all others. */
const levelOf = (n: number, most: number) => (n === 0 ? 0 : Math.max(1, Math.round(Math.sqrt(n / most) * levels)));

/** HeatMap draws the series; it has minutes as buckets. */
export function HeatMap({ series }: { series: LoadSeries }) {
  const [chosen, setChosen] = useState<number>();
  const zone = zoneFor();
  const cells = cellsOf(series, zone);
  const most = Math.max(1, ...series.counts);
  const rows = (cells.at(-1)?.row ?? 0) + 1;
  const width = left + perRow * cell, height = top + rows * rowHeight + 4;
  const describe = (i: number) => `${formatTime(series.start + i * series.step, serverNow(), zone)}: ${plural(series.counts[i], "run")}${series.estimated[i] ? `, ${formatCount(series.estimated[i])} of them estimated` : ""}`;
  const point = (e: PointerEvent) => setChosen(Number((e.target as Element).getAttribute("data-index") ?? NaN));
  const firstOf = (row: number) => cells.find((c) => c.row === row)!;
  return (
    <>
      <svg class="heat" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`Due runs by minute, at most ${formatCount(most)}; the busiest minutes are listed below.`}
        onPointerMove={point} onPointerLeave={() => setChosen(undefined)}>
        {[0, 15, 30, 45].map((m) => <text key={m} x={left + m * cell} y="12">:{String(m).padStart(2, "0")}</text>)}
        {Array.from({ length: rows }, (_, row) => <text key={row} x="0" y={top + row * rowHeight + 11}>{formatMinute(series.start + firstOf(row).index * series.step, zone).slice(0, 2)}:00</text>)}
        {cells.map((c) => (
          <rect key={c.index} data-index={c.index} class={`level${levelOf(series.counts[c.index]!, most)}`} x={left + c.column * cell} y={top + c.row * rowHeight}
            width={cell - 1} height={rowHeight - 1} rx="1" />
        ))}
      </svg>
      <p class="soft legend"><span>0</span>{Array.from({ length: levels }, (_, i) => <i key={i} class={`level${i + 1}`} />)}<span>{formatCount(most)}</span>
        <span>{chosen !== undefined && series.counts[chosen] !== undefined ? describe(chosen) : "Point at a minute."}</span></p>
    </>
  );
}
