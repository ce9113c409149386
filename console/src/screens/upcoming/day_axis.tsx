import { call } from "../../api/client";
import { anyNamespace, listLink, namespace } from "../../app/routes";
import { Card } from "../../components/card";
import { seriesOf, type LoadSeries } from "../../components/load_series";
import { Loaded } from "../../components/messages";
import { formatCount, plural } from "../../format/text";
import { formatMinute, formatTime, zoneFor } from "../../format/time";
import { serverNow } from "../../live/clock";
import { useQuery } from "../../live/query";

const width = 1200, height = 110, base = 86;

/** DayAxis are the due runs of the next 24 hours on one axis, in steps of ten minutes. */
export function DayAxis() {
  const ns = namespace.value;
  const forecast = useQuery(`day/${ns}`, (signal) => call("ForecastLoad",
    { namespace: ns === anyNamespace ? undefined : ns, horizon: "86400s", resolution: "600s" }, undefined, { signal }), 60_000);
  return (
    <Card title="The next 24 hours" note="due runs in ten minutes" aside={<a href={listLink("load", {})}>By minute</a>}>
      <Loaded query={forecast} lines={4} what="The forecast">{(f) => <Axis series={seriesOf(f)} />}</Loaded>
    </Card>
  );
}

function Axis({ series }: { series: LoadSeries }) {
  const { counts, start, step } = series;
  const all = counts.reduce((a, b) => a + b, 0);
  if (all === 0) return <p class="soft">No run is due within 24 hours.</p>;
  const most = Math.max(...counts);
  const peak = counts.indexOf(most);
  const zone = zoneFor();
  const x = (i: number) => (i / counts.length) * width;
  const hours = Array.from({ length: 9 }, (_, i) => Math.round((i / 8) * counts.length));
  const label = `${formatCount(all)} runs within 24 hours, at most ${formatCount(most)} in ten minutes, from ${formatTime(start + peak * step, serverNow(), zone)}.`;
  return (
    <svg class="chart" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      <line class="axis" x1="0" y1={base} x2={width} y2={base} />
      {counts.map((n, i) => n > 0 && <rect key={i} class={i === peak ? "bar peak" : "bar"} x={x(i)} width={Math.max(2, width / counts.length - 2)}
        y={base - (n / most) * (base - 22)} height={(n / most) * (base - 22)} />)}
      <text class="big" x={Math.min(x(peak), width - 170)} y="14">{formatMinute(start + peak * step, zone)} · {plural(most, "run")}</text>
      {hours.map((i, n) => <text key={n} x={x(i)} y={height - 6} text-anchor={n === 0 ? "start" : n === 8 ? "end" : "middle"}>{formatMinute(start + i * step, zone)}</text>)}
    </svg>
  );
}
