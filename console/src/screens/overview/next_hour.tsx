import type { ForecastLoadResponse } from "../../api/generated";
import { listLink } from "../../app/routes";
import { seriesOf } from "../../components/load_series";
import { formatCount, plural } from "../../format/text";
import { formatMinute, zoneFor } from "../../format/time";

const width = 360, height = 150, base = 128;

/** NextHour draws the due runs of each minute, and names the largest herd. */
export function NextHour({ forecast }: { forecast: ForecastLoadResponse }) {
  const { counts: totals, start, step } = seriesOf(forecast);
  const count = Math.max(totals.length, 60);
  const most = Math.max(1, ...totals);
  const peak = totals.indexOf(most);
  const zone = zoneFor();
  const x = (i: number) => (i / count) * width;
  const all = totals.reduce((a, b) => a + b, 0);
  if (all === 0) return <p class="soft">No run is due within the hour.</p>;
  const label = `${formatCount(all)} runs are due within the hour, at most ${formatCount(most)} a minute, at ${formatMinute(start + peak * step, zone)}.`;
  return (
    <>
      <svg class="chart" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
        <line class="axis" x1="0" y1={base} x2={width} y2={base} />
        {totals.map((n, i) => n > 0 && (
          <rect key={i} class={i === peak ? "bar peak" : "bar"} x={x(i)} width={Math.max(2, width / count - 2)}
            y={base - (n / most) * (base - 24)} height={(n / most) * (base - 24)} />
        ))}
        <text class="big" x={Math.min(x(peak), width - 90)} y="14">{formatMinute(start + peak * step, zone)} · {plural(most, "run")}</text>
        {[0, 20, 40].map((i) => <text key={i} x={x(i)} y={height - 6}>{formatMinute(start + i * step, zone)}</text>)}
        <text x={width} y={height - 6} text-anchor="end">{formatMinute(start + count * step, zone)}</text>
      </svg>
      {forecast.herds?.[0] && (
        <p class="soft">{plural(forecast.herds[0].jobs, "job")} of queue {forecast.herds[0].queue} are due
          {" "}{forecast.herds[0].time ? `at ${formatMinute(Date.parse(forecast.herds[0].time), zone)}` : "at once"}; {plural(forecast.herds[0].movableJobs, "job")} could
          be spread. <a href={listLink("load", {})}>See how</a></p>
      )}
    </>
  );
}
