// The dialog of a change of all matches: a dry run counts them and names the first, then a person confirms.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { curlText, shellText, type ActionField, type Values } from "../actions/action";
import { FieldInput } from "../actions/button";
import { toFailure, type Failure } from "../api/errors";
import { lastPart, parseJobName } from "../api/names";
import { refusalOf } from "../app/access";
import { notify } from "../app/notices";
import { anyNamespace } from "../app/routes";
import { Commands } from "../components/copy";
import { Dialog } from "../components/dialog";
import { Failed } from "../components/messages";
import { formatCount, plural } from "../format/text";
import { changes, countMatches, startChange, type MatchCount, type MatchRequest } from "./changes";
import { kindTitle, matchAll, type BulkKind } from "./kinds";

export interface BulkButtonProps {
  kind: BulkKind;
  namespace: string;
  /** filter of the matches; "": all of the namespace. */
  filter: string;
  /** isEditable: the dialog has a field for the filter. */
  isEditable?: boolean;
}

/** BulkButton opens the dialog of a change. If the change is not possible, it says why. */
export function BulkButton({ kind, namespace, filter, isEditable }: BulkButtonProps) {
  const [isOpen, setIsOpen] = useState(false);
  const id = useId();
  const refusal = namespace === anyNamespace ? "Choose one namespace: a change is made in one."
    : refusalOf(kind.method, { namespace });
  return (
    <>
      <button type="button" data-bulk={kind.method} aria-disabled={refusal ? true : undefined} title={refusal || undefined}
        aria-describedby={refusal ? id : undefined} onClick={() => { if (refusal) notify(refusal); else setIsOpen(true); }}>
        {kind.verb.replace(" of", "")}…
      </button>
      {refusal && <span id={id} class="hidden">{refusal}</span>}
      <Dialog open={isOpen} title={`${kind.verb} ${kind.isAbout} of ${namespace}`} onClose={() => setIsOpen(false)}>
        {isOpen && <BulkForm kind={kind} namespace={namespace} filter={filter} isEditable={isEditable} onEnd={() => setIsOpen(false)} />}
      </Dialog>
    </>
  );
}

const filterField: ActionField = {
  name: "filter", label: "Filter", kind: "text", help: `As for jobs, such as queue = mail AND last_error:"550". ${matchAll} selects all.`,
};

/** firstValues are the values of a form before anybody has typed. */
function firstValues(kind: BulkKind, namespace: string, filter: string): Values {
  const values = Object.fromEntries(kind.fields.map((f) => [f.name, f.initial ?? ""]));
  const pause = changes.peek().find((c) => c.pauseId && c.namespace === namespace && c.filter === (filter || matchAll));
  return { ...values, ...("pauseId" in values && pause ? { pauseId: pause.pauseId! } : {}), filter: filter || matchAll, typed: "" };
}

function BulkForm({ kind, namespace, filter, isEditable, onEnd }: BulkButtonProps & { onEnd: () => void }) {
  const [values, setValues] = useState<Values>(() => firstValues(kind, namespace, filter));
  const request: MatchRequest = {
    method: kind.method, namespace, filter: values["filter"]!.trim(), options: kind.options(values),
  };
  const { count, failure, isCounting, start } = useCount(request);
  const needsTyping = !!kind.isDestructive && (count?.matched ?? 0) > typingFrom;
  const isTyped = !needsTyping || values["typed"]!.replaceAll(",", "").trim() === String(count?.matched);
  const isReady = !!count?.confirmation && count.matched > 0 && isTyped;
  const submit = (e: Event) => {
    e.preventDefault();
    if (!count) {
      start();
    } else if (isReady) {
      startChange(request, count);
      onEnd();
    }
  };
  const set = (name: string) => (value: string) => setValues((all) => ({ ...all, [name]: value }));
  return (
    <form onSubmit={submit} class="action">
      <p>{kind.effect}</p>
      {isEditable
        ? <FieldInput field={filterField} value={values["filter"]!} onChange={set("filter")} />
        : <p>Filter: <code>{request.filter === matchAll ? `${matchAll} (all of the namespace)` : request.filter}</code></p>}
      {kind.fields.map((f) => <FieldInput key={f.name} field={f} value={values[f.name]!} onChange={set(f.name)} />)}
      {failure && <Failed failure={failure} />}
      <Matches kind={kind} count={count} isCounting={isCounting} />
      {needsTyping && <FieldInput value={values["typed"]!} onChange={set("typed")}
        field={{ name: "typed", kind: "text", label: `Type ${formatCount(count!.matched)} to confirm` }} />}
      <Commands cli={cliText(kind, request)} curl={curlText(kind.method, { namespace },
        { ...request.options, filter: request.filter, dryRun: true })} />
      <div class="buttons">
        <button type="button" onClick={onEnd}>Cancel</button>
        {count
          ? <button type="submit" class={kind.isDestructive ? "main danger" : "main"} data-confirm aria-busy={isCounting}
            disabled={!isReady}>{kindTitle(kind, count.matched)}</button>
          : <button type="submit" class="main" data-count aria-busy={isCounting}>Count the matches</button>}
      </div>
    </form>
  );
}

/** typingFrom is from how many matches on the number must be typed before they are destroyed. */
const typingFrom = 20;

function cliText(kind: BulkKind, r: MatchRequest): string {
  return shellText(["fermata", ...kind.command, "--filter", r.filter, "--namespace", r.namespace, ...kind.flags(r.options)]);
}

/**
 * useCount counts the matches of a request: at once, and again when start is called. The count of another request is
 * none, because its confirmation does not fit.
 */
function useCount(request: MatchRequest) {
  const key = JSON.stringify(request);
  const [counted, setCounted] = useState<{ key: string; count?: MatchCount; failure?: Failure; isCounting: boolean }>();
  const running = useRef<AbortController | undefined>(undefined);
  const start = () => {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    let count: MatchCount | undefined;
    const show = (failure?: Failure) => {
      if (!controller.signal.aborted) setCounted({ key, count, failure, isCounting: !failure && !count?.confirmation });
    };
    show();
    countMatches(request, (c) => { count = c; show(); }, controller.signal).catch((e: unknown) => show(toFailure(e)));
  };
  useEffect(() => {
    start();
    return () => running.current?.abort();
  }, []);
  const isCurrent = counted?.key === key;
  return {
    count: isCurrent ? counted?.count : undefined, failure: isCurrent ? counted?.failure : undefined,
    isCounting: isCurrent && !!counted?.isCounting, start,
  };
}

function Matches({ kind, count, isCounting }: { kind: BulkKind; count: MatchCount | undefined; isCounting: boolean }) {
  if (!count) return <p class="soft" role="status">{isCounting ? "Counting…" : "Not counted yet."}</p>;
  return (
    <div class="matches">
      <p role="status"><strong>{count.matched === 0 ? `No ${kind.noun} matches.` : `${plural(count.matched, kind.noun)} ${count.matched === 1 ? "matches" : "match"}${isCounting ? " so far" : ""}.`}</strong>
        {count.matched > count.names.length && <span class="soft"> The first {count.names.length}:</span>}</p>
      {count.names.length > 0 && <ul>{count.names.map((n) => <li key={n}><bdi class="id">{matchText(n)}</bdi></li>)}</ul>}
    </div>
  );
}

/** matchText is a match by its resource name: the job, and the dead letter or run of it. */
export function matchText(name: string): string {
  const { job } = parseJobName(name);
  return name.split("/").length > 4 ? `${job}, ${lastPart(name)}` : job;
}
