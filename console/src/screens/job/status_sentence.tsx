import type { ExplainJobResponse, PreviewScheduleResponse, Reason } from "../../api/generated";
import { Sentence } from "../../components/card";
import { ErrorText } from "../../components/job_link";
import { zoneOfSchedule } from "../../components/schedule_text";
import { Ago, Countdown, Time } from "../../components/time";
import { formatSpan } from "../../format/duration";
import { plural } from "../../format/text";

/** StatusSentence says what the job does now, why, until when, and what ends it. */
export function StatusSentence({ explained, preview }: { explained: ExplainJobResponse; preview: PreviewScheduleResponse | undefined }) {
  const job = explained.job ?? {};
  const status = job.status ?? {};
  const zone = zoneOfSchedule(job.schedule);
  const first = explained.reasons?.[0];
  const failures = Number(status.consecutiveFailures ?? 0);
  const plain = preview?.backoffIntervals?.[0];
  const until = first?.untilTime ?? status.nextDueTime;
  switch (first?.kind) {
    case "KIND_RUNNING":
      return <Sentence>Running <b>attempt {status.currentAttempt ?? 1}</b> since <b><Time at={status.lastStartTime} zone={zone} /></b> (<Ago at={status.lastStartTime} />)
        {failures > 0 && <>, after {plural(failures, "failed run")} in a row</>}.</Sentence>;
    case "KIND_BACKOFF":
      return <Sentence>Held until <b><Time at={until} zone={zone} /></b> (<b><Countdown to={until} /></b>) by its backoff:
        {" "}<b>{plural(failures, "run")} in a row failed</b><LastError error={status.lastError} at={status.lastFinishTime} />.
        {plain && <> One success brings it back to every {formatSpan(plain)}.</>}</Sentence>;
    case "KIND_RETRY":
      return <Sentence>Waits until <b><Time at={until} zone={zone} /></b> (<b><Countdown to={until} /></b>) for attempt
        {" "}{status.currentAttempt} of {job.retryPolicy?.maxAttempts ?? 1}<LastError error={status.lastError} at={status.lastFinishTime} />.</Sentence>;
    case "KIND_NOT_DUE":
      return <Sentence>Due at <b><Time at={until} zone={zone} /></b> (<b><Countdown to={until} /></b>){failures === 0 ? "; nothing holds it back" : ""}.</Sentence>;
  }
  return <Sentence><Cause reason={first} summary={explained.summary} zone={zone} /></Sentence>;
}

function Cause({ reason, summary, zone }: { reason: Reason | undefined; summary: string | undefined; zone: string | undefined }) {
  if (!reason) return <>{summary}</>;
  return <><b>{capital(reason.message ?? "")}</b>{reason.untilTime && <>, until <Time at={reason.untilTime} zone={zone} /> (<Countdown to={reason.untilTime} />)</>}.</>;
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

function LastError({ error, at }: { error: string | undefined; at: string | undefined }) {
  if (!error) return null;
  return <>, the last one <Ago at={at} /> with <ErrorText text={error} /></>;
}
