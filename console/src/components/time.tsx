// Times and countdowns.
import { useMemo } from "preact/hooks";
import { settings } from "../app/settings";
import { formatDistance, formatDuration } from "../format/duration";
import { formatFull, formatTime, localZone, zoneFor, zoneLabel } from "../format/time";
import { second } from "../live/clock";

export interface TimeProps {
  /** at is a time of the API; unset: a dash. */
  at: string | undefined;
  /** zone is the zone of the job's schedule. */
  zone?: string;
  /** both: the time and its distance. */
  both?: boolean;
}

/** Time is a time as the settings ask for it; its title has all of it. */
export function Time({ at, zone, both }: TimeProps) {
  return at ? <KnownTime at={at} zone={zone} both={both} /> : <span class="soft">–</span>;
}

function KnownTime({ at, zone, both }: TimeProps & { at: string }) {
  const time = Date.parse(at);
  const shown = zoneFor(zone);
  const title = useMemo(() => `${formatFull(time, shown)}\n${formatFull(time, "UTC")}`, [time, shown]);
  const isRelative = settings.times.value === "relative";
  const now = isRelative || both ? second.value : second.peek();
  const distance = formatDistance(time, now);
  const label = shown === localZone && settings.zone.value !== "job" ? "" : ` ${zoneLabel(time, shown)}`;
  const absolute = formatTime(time, now, shown) + label;
  return (
    <time dateTime={at} title={title}>
      {isRelative ? distance : absolute}
      {both && <span class="soft"> {isRelative ? absolute : distance}</span>}
    </time>
  );
}

/** Ago is how far a time is from now, whatever the settings. */
export function Ago({ at }: { at: string | undefined }) {
  if (!at) return null;
  const time = Date.parse(at);
  return <time dateTime={at} title={formatFull(time, zoneFor())}>{formatDistance(time, second.value)}</time>;
}

/** Countdown is the time left until a time; "now" from then on. */
export function Countdown({ to }: { to: string | undefined }) {
  if (!to) return null;
  const left = Date.parse(to) - second.value;
  return <time dateTime={to} class="countdown">{left < 1000 ? "now" : formatDuration(Math.floor(left / 1000) * 1000)}</time>;
}
