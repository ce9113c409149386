// The backoff curve: the interval after each number of failures, its cap, the band of its jitter, where the job is.
import type { BackoffPolicy, Job, PreviewScheduleResponse } from "../../api/generated";
import { zoneOfSchedule } from "../../components/schedule_text";
import { Countdown, Time } from "../../components/time";
import { formatDuration, parseDuration } from "../../format/duration";
import { plural } from "../../format/text";

const width = 640, height = 260;
const left = 70, right = 40, top = 26, bottom = 48;

/** Backoff draws the curve, or says why there is none. */
export function Backoff({ job, preview }: { job: Job; preview: PreviewScheduleResponse }) {
  const intervals = (preview.backoffIntervals ?? []).map(parseDuration);
  const policy = job.backoffPolicy ?? {};
  if (policy.disabled) return <p class="soft">The backoff is disabled: a failing job keeps its interval.</p>;
  if (intervals.length < 2) {
    const delays = (preview.retryDelays ?? []).map((d) => formatDuration(parseDuration(d)));
    return <p class="soft">No interval to back off. {delays.length > 0 && <>A failed attempt is repeated after {delays.join(", ")}.</>}</p>;
  }
  return (
    <>
      <Curve intervals={intervals} policy={policy} failures={Number(job.status?.consecutiveFailures ?? 0)} />
      <Outlook job={job} preview={preview} intervals={intervals} />
    </>
  );
}

/** jitterBand is the least and the greatest that jitter makes of an interval, as documented for each kind. */
function jitterBand(policy: BackoffPolicy, interval: number, cap: number): [number, number] {
  const f = policy.jitter?.fraction ?? 0.1;
  switch (policy.jitter?.kind) {
    case "KIND_NONE":
      return [interval, interval];
    case "KIND_PROPORTIONAL":
      return [interval * (1 - f), interval * (1 + f)];
    case "KIND_SPREAD":
      return [interval / 2, Math.min(interval * 1.5, cap)];
    case "KIND_FULL":
      return [0, interval];
    case "KIND_EQUAL":
      return [interval / 2, interval];
  }
  return [interval * (1 - f), interval];
}

function Curve({ intervals, policy, failures }: { intervals: number[]; policy: BackoffPolicy; failures: number }) {
  const last = intervals.length - 1;
  const most = intervals[last]!;
  const cap = Math.max(parseDuration(policy.maxDelay) || most, most);
  const isCapped = most >= (parseDuration(policy.maxDelay) || Infinity);
  const points = [...intervals, most]; // one more step shows that it stays there
  const bands = points.map((n) => jitterBand(policy, n, cap));
  const scale = Math.max(...points, ...bands.map((b) => b[1]));
  const x = (i: number) => left + (i / (points.length - 1)) * (width - left - right);
  const y = (n: number) => height - bottom - (n / scale) * (height - top - bottom);
  const line = (values: number[], from = 0) => values.map((n, i) => `${x(i + from)},${y(n)}`).join(" ");
  const step = Math.min(failures, last);
  const label = `After ${plural(failures, "failure")} in a row the interval is ${formatDuration(intervals[step]!)}, step ${step} of ${last}; it grows to ${formatDuration(most)}.`;
  return (
    <svg class="chart curve" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      <line class="axis" x1={left} x2={left} y1={top - 10} y2={height - bottom} />
      <line class="axis" x1={left} x2={width - right + 20} y1={height - bottom} y2={height - bottom} />
      <line class="cap" x1={left} x2={width - right + 20} y1={y(most)} y2={y(most)} />
      <text x={width - right + 20} y={y(most) - 8} text-anchor="end">{isCapped ? "cap" : "longest"} {formatDuration(most)}</text>
      <polygon class="band" points={`${line(bands.map((b) => b[1]))} ${[...bands].reverse().map((b, i) => `${x(bands.length - 1 - i)},${y(b[0])}`).join(" ")}`} />
      <polyline class="way" points={line(points.slice(0, step + 1))} />
      <polyline class="way ahead" points={line(points.slice(step), step)} />
      {intervals.map((n, i) => i !== step && <circle key={i} class={i < step ? "done" : "ahead"} cx={x(i)} cy={y(n)} r="4" />)}
      <circle class="here" cx={x(step)} cy={y(intervals[step]!)} r="8" />
      {/* Above the curve, which rises to the right: on the left of all points but the first two. */}
      <text class="big" x={step < 2 ? x(step) + 12 : x(step) - 12} y={y(intervals[step]!) - 14}
        text-anchor={step < 2 ? "start" : "end"}>
        {failures === 0 ? `now: no failure, ${formatDuration(intervals[0]!)}` : `now: ${plural(failures, "failure")}, ${formatDuration(intervals[step]!)}`}
      </text>
      {intervals.map((_, i) => <text key={i} x={x(i)} y={height - bottom + 18} text-anchor="middle">{i}</text>)}
      <text x={x(points.length - 1)} y={height - bottom + 18} text-anchor="middle">{last + 1}+</text>
      <text x={(left + width - right) / 2} y={height - 8} text-anchor="middle">runs failed in a row</text>
      <text x={left - 8} y={y(intervals[0]!) + 4} text-anchor="end">{formatDuration(intervals[0]!)}</text>
      {y(intervals[0]!) - y(most) > 30 && <text x={left - 8} y={y(most) + 4} text-anchor="end">{formatDuration(most)}</text>}
    </svg>
  );
}

function Outlook({ job, preview, intervals }: { job: Job; preview: PreviewScheduleResponse; intervals: number[] }) {
  const zone = zoneOfSchedule(job.schedule);
  const next = job.status?.nextDueTime;
  const projected = preview.projectedDueTimes ?? [];
  const after = projected.find((t) => next !== undefined && Date.parse(t) > Date.parse(next));
  const ceiling = intervals.at(-1)!;
  return (
    <dl class="outlook">
      <div><dt>next attempt</dt><dd><Time at={next} zone={zone} /> {next && <span class="soft">(<Countdown to={next} />)</span>}</dd></div>
      {after && <div><dt>if it fails</dt><dd><Time at={after} zone={zone} />, at most every {formatDuration(ceiling)}</dd></div>}
      <div><dt>if it succeeds</dt><dd>every {formatDuration(intervals[0]!)}</dd></div>
      <div><dt>jitter</dt><dd>{jitterText(job.backoffPolicy ?? {})}</dd></div>
    </dl>
  );
}

function jitterText(policy: BackoffPolicy): string {
  const percent = `${Math.round((policy.jitter?.fraction ?? 0.1) * 100)} %`;
  switch (policy.jitter?.kind) {
    case "KIND_NONE":
      return "none";
    case "KIND_PROPORTIONAL":
      return `up to ${percent} more or less`;
    case "KIND_SPREAD":
      return "half to one and a half";
    case "KIND_FULL":
      return "anything up to the interval";
    case "KIND_EQUAL":
      return "half to the whole interval";
  }
  return `up to ${percent} less, the same on every node`;
}
