// The form of a job: create and edit.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { curlText } from "../../actions/action";
import { call } from "../../api/client";
import { fieldsOf, toFailure, type Failure } from "../../api/errors";
import type { Job, Warning } from "../../api/generated";
import { refusalOf } from "../../app/access";
import { loadDraft, saveDraft } from "../../app/drafts";
import { notify } from "../../app/notices";
import { goTo, jobLink, linkTo } from "../../app/routes";
import { Card } from "../../components/card";
import { Commands } from "../../components/copy";
import { FieldDiff } from "../../components/field_diff";
import { Failed } from "../../components/messages";
import { Ago } from "../../components/time";
import { JobField } from "./field";
import { apiName, formPath, isShown, ownBackoff, ownRetries, scheduleKind, scheduleKinds, sections, type Section } from "./fields";
import { useLatest } from "./latest";
import { Studio } from "./studio";
import { changedFields, jobOf, problemsOf, rebase, valuesOf, type FormValues, type Problems } from "./values";
import { Warnings } from "./warnings";

export interface JobFormProps {
  namespace: string;
  /** stored is the job as it is now; undefined: a new one. */
  stored?: Job;
  /** id of the stored job. */
  id?: string;
  /** reload reads the stored job again. */
  reload?: () => Promise<void>;
}

/** Draft is an edit that is not saved. */
interface Draft {
  /** id and namespace of a new job. */
  id: string;
  namespace: string;
  values: FormValues;
  /** base is the job as it was read when the edit began. */
  base: Job;
  /** requestId is that of the last attempt to save. */
  requestId: string;
  /** attempt is what the last attempt sent: with the same content it is repeated with the same id. */
  attempt: string;
  at: number;
}

const newName = "create";

function firstDraft({ namespace, stored, id }: JobFormProps): { draft: Draft; isKept: boolean } {
  const kept = loadDraft<Draft>(stored ? `${namespace}/${id}` : newName);
  if (kept) return { draft: { ...kept, values: { ...valuesOf(kept.base), ...kept.values } }, isKept: true };
  const base = stored ?? {};
  return { draft: { id: id ?? "", namespace, base, values: valuesOf(base), requestId: "", attempt: "", at: 0 }, isKept: false };
}

/** JobForm edits a job. What was typed survives a reload, a lost connection and a new sign-in. */
export function JobForm(props: JobFormProps) {
  const { stored, reload } = props;
  const first = useMemo(() => firstDraft(props), []);
  const [draft, setDraft] = useState(first.draft);
  const [isKept, setIsKept] = useState(first.isKept);
  const [failure, setFailure] = useState<Failure>();
  const [refused, setRefused] = useState<Problems>({});
  const [isSaving, setIsSaving] = useState(false);
  const [saved, setSaved] = useState<Job>();
  const [both, setBoth] = useState<string[]>([]);
  const [refusals, setRefusals] = useState(0); // of saves: each moves the focus to the first invalid field
  const form = useRef<HTMLFormElement>(null);
  const latest = useRef(draft); // two keys may come before the next rendering

  const namespace = stored ? props.namespace : draft.namespace;
  const name = stored ? `${namespace}/${props.id}` : newName;
  const before = useMemo(() => valuesOf(draft.base), [draft.base]);
  const changed = changedFields(draft.values, before);
  const { job, problems } = jobOf(draft.values, draft.base);
  const isChanged = changed.length > 0 || !stored && draft.id !== "";
  const check = useCheck(namespace, draft.id, job, isChanged && Object.keys(problems).length === 0);
  const all: Problems = { ...visibleProblems(check.problems, draft.values), ...refused, ...problems };

  const keep = (next: Draft) => {
    latest.current = next;
    setDraft(next);
    saveDraft(name, next);
  };
  const edit = (change: Partial<Draft>, path: string) => {
    keep({ ...latest.current, ...change, at: Date.now() });
    setRefused(({ [path]: _gone, ...rest }) => rest);
  };
  const set = (path: string, value: string) => edit({ values: { ...latest.current.values, [path]: value } }, path);
  const discard = () => {
    const base = stored ?? {};
    keep({ id: props.id ?? "", namespace: props.namespace, base, values: valuesOf(base), requestId: "", attempt: "", at: 0 });
    saveDraft(name, undefined);
    setIsKept(false), setFailure(undefined), setRefused({}), setBoth([]);
  };
  const isStale = !!stored && stored.etag !== draft.base.etag;
  const isStoredAlready = isStale && isChanged && changedFields(rebase(draft.values, before, valuesOf(stored)).values, valuesOf(stored)).length === 0;
  const takeOver = () => {
    const { values, both } = rebase(draft.values, before, valuesOf(stored!));
    edit({ base: stored!, values }, "");
    setBoth(both), setFailure(undefined);
  };

  useEffect(() => { if (refusals > 0) form.current?.querySelector<HTMLElement>("[aria-invalid]")?.focus(); }, [refusals]);
  const refuse = (problems: Problems) => {
    setRefused(problems);
    if (Object.keys(problems).length > 0) setRefusals((n) => n + 1);
  };

  const body = stored ? Object.fromEntries(Object.entries(job).filter(([k]) => changed.includes(k))) as Job : job;
  const params = stored ? { namespace, job: props.id!, updateMask: changed.map(apiName).join(",") } : { namespace, jobId: draft.id || undefined };
  const method = stored ? "UpdateJob" as const : "CreateJob" as const;

  const save = async (e: Event) => {
    e.preventDefault();
    if (isSaving) return;
    if (Object.keys(problems).length > 0) {
      refuse(problems);
      return;
    }
    // The same content again, after a lost response for instance, is the same request.
    const attempt = JSON.stringify([params, body]);
    const requestId = attempt === draft.attempt ? draft.requestId : crypto.randomUUID();
    keep({ ...latest.current, attempt, requestId });
    setIsSaving(true), setFailure(undefined), setRefused({});
    try {
      const result = stored
        ? await call("UpdateJob", params as { namespace: string; job: string; updateMask: string }, body, { etag: draft.base.etag, requestId })
        : await call("CreateJob", params, body, { requestId });
      saveDraft(name, undefined);
      notify(stored ? "The job is saved." : "The job is created.");
      if (result.warnings?.length) setSaved(result);
      else goTo(jobLink(result.name));
    } catch (error) {
      const f = toFailure(error);
      setFailure(f);
      refuse(problemsOf(f.fields, formPath));
      if (f.status === 412 || f.status === 409) void reload?.();
    }
    setIsSaving(false);
  };

  if (saved) return <Saved job={saved} />;
  const refusal = refusalOf(method, { namespace, queue: job.queue });
  const nothing = stored && changed.length === 0 ? "Nothing is changed yet." : "";
  return (
    <div class="editor">
      <form ref={form} onSubmit={(e) => void save(e)} noValidate>
        {isKept && <p class="stale" role="status">Your edit of <Ago at={new Date(draft.at).toISOString()} /> is back. <button type="button" data-discard onClick={discard}>Discard it</button></p>}
        {isStale && (
          <div class="failed" role="alert" data-stale>
            <p><strong>{isStoredAlready ? "The job has your changes already." : "Somebody else has changed this job meanwhile."}</strong> <button type="button" data-rebase onClick={takeOver}>Take their version, keep my changes</button></p>
            <FieldDiff before={draft.base} after={stored} caption="What somebody else has changed" />
          </div>
        )}
        {both.length > 0 && <p class="stale" role="status">You both changed {both.join(", ")}: yours is in the form.</p>}
        {!stored && <NewName id={draft.id} namespace={namespace} problem={all["jobId"]}
          onId={(id) => edit({ id }, "jobId")} onNamespace={(ns) => edit({ namespace: ns }, "jobId")} />}
        <Sections values={draft.values} base={draft.base} problems={all} onChange={set} />
        <Card title={stored ? "What changes" : "Create"}>
          {check.failure && <Failed failure={check.failure} what="The check" />}
          <Warnings warnings={check.warnings} />
          {stored && isChanged && check.after && <FieldDiff before={draft.base} after={check.after} caption="What changes" />}
          {all[""] && <p class="invalid">{all[""]}</p>}
          {failure && <Failed failure={failure} isAction />}
          <Commands cli="" curl={curlText(method, params, body, stored && draft.base.etag)} />
          <div class="buttons">
            <a class="button" href={stored ? jobLink(stored.name) : linkTo(["jobs"], { namespace })} onClick={() => saveDraft(name, undefined)}>Cancel</a>
            <button type="submit" class="main" data-save aria-busy={isSaving} aria-disabled={refusal || nothing ? true : undefined}
              title={refusal || nothing || undefined}
              onClick={(e) => { if (refusal || nothing) { e.preventDefault(); notify(refusal || nothing); } }}>{stored ? "Save" : "Create job"}</button>
          </div>
        </Card>
      </form>
      <div class="aside">
        <Studio job={draft.id ? `namespaces/${namespace}/jobs/${draft.id}` : ""} schedule={job.schedule} before={stored && draft.base.schedule} />
      </div>
    </div>
  );
}

/** visibleProblems leaves out that fields are empty which nobody has filled in yet. */
const visibleProblems = (problems: Problems, values: FormValues): Problems =>
  Object.fromEntries(Object.entries(problems).filter(([path]) => path === "" || path === "jobId" || (values[path] ?? "") !== ""));

interface Check {
  problems: Problems;
  warnings?: Warning[];
  after?: Job;
  failure?: Failure;
}

/** useCheck lets the nodes check the job while it is edited; they store nothing. */
function useCheck(namespace: string, id: string, job: Job, isOn: boolean): Check {
  const plan = useLatest(isOn && id ? JSON.stringify([namespace, id, job]) : "", (signal) =>
    call("PlanJobs", { namespace }, { desiredJobs: [{ jobId: id, job }] }, { signal }));
  const change = plan.data?.changes?.[0];
  const shown = plan.failure?.status === 400 ? undefined : plan.failure;
  if (!change || plan.isOld) return { problems: {}, failure: plan.isOld ? undefined : shown };
  return { problems: problemsOf(fieldsOf(change.details), formPath), warnings: change.after?.warnings, after: change.after, failure: shown };
}

function NewName({ id, namespace, problem, onId, onNamespace }: {
  id: string; namespace: string; problem: string | undefined; onId: (id: string) => void; onNamespace: (namespace: string) => void;
}) {
  return (
    <Card title="Name">
      <div class="field">
        <label for="job-id">Id</label>
        <input id="job-id" name="id" data-field="jobId" type="text" value={id} autocomplete="off" spellcheck={false} maxLength={128}
          aria-invalid={problem ? true : undefined} aria-describedby={problem ? "job-id-problem job-id-help" : "job-id-help"} onInput={(e) => onId(e.currentTarget.value)} />
        {problem && <p id="job-id-problem" class="invalid">{problem}</p>}
        <p id="job-id-help" class="soft">1-128 of letters, digits and ._:~-, starting with a letter or digit. Empty: the server generates one.</p>
      </div>
      <div class="field">
        <label for="job-namespace">Namespace</label>
        <input id="job-namespace" name="namespace" type="text" value={namespace} autocomplete="off" spellcheck={false} required
          onInput={(e) => onNamespace(e.currentTarget.value)} />
      </div>
    </Card>
  );
}

const policyChoices = [{ value: "", text: "As the defaults say" }, { value: "own", text: "Of this job" }];
const choicesOf: Record<string, { label: string; options: Array<{ value: string; text: string }> }> = {
  [scheduleKind]: { label: "Kind of schedule", options: scheduleKinds },
  [ownRetries]: { label: "Retry policy", options: policyChoices },
  [ownBackoff]: { label: "Backoff policy", options: policyChoices },
};

interface SectionsProps {
  values: FormValues;
  base: Job;
  problems: Problems;
  onChange: (path: string, value: string) => void;
}

function Sections(props: SectionsProps) {
  const presets = useLatest("presets", (signal) => call("ListPresets", {}, undefined, { signal })).data?.presets ?? [];
  const zones = useMemo(() => Intl.supportedValuesOf("timeZone"), []);
  return (
    <>
      <datalist id="zones">{zones.map((z) => <option key={z} value={z} />)}</datalist>
      <datalist id="retry-presets">{presets.filter((p) => p.retryPolicy).map((p) => <option key={p.name} value={p.name}>{p.description}</option>)}</datalist>
      <datalist id="backoff-presets">{presets.filter((p) => p.backoffPolicy).map((p) => <option key={p.name} value={p.name}>{p.description}</option>)}</datalist>
      {sections.map((s) => <OneSection key={s.title} section={s} {...props} />)}
    </>
  );
}

const suggestionsOf = (path: string): string | undefined =>
  path.endsWith(".timeZone") ? "zones" : path === "retryPolicy.preset" ? "retry-presets" : path === "backoffPolicy.preset" ? "backoff-presets" : undefined;

function OneSection({ section, values, base, problems, onChange }: SectionsProps & { section: Section }) {
  const shown = section.paths.filter((p) => isShown(p, values));
  const choice = section.choice && choicesOf[section.choice];
  const isNeeded = shown.some((p) => problems[p]);
  const [isOpen, setIsOpen] = useState(() => !section.isMore || shown.some((p) => values[p] !== "" && base.name === undefined));
  if (shown.length === 0 && !choice) return null;
  const fields = (
    <>
      {choice && (
        <div class="field">
          <label for={`choice-${section.choice}`}>{choice.label}</label>
          <select id={`choice-${section.choice}`} name={section.choice} value={values[section.choice!]} onChange={(e) => onChange(section.choice!, e.currentTarget.value)}>
            {choice.options.map((o) => <option key={o.value} value={o.value}>{o.text}</option>)}
          </select>
          {problems[section.choice!] && <p class="invalid" role="alert">{problems[section.choice!]}</p>}
        </div>
      )}
      {shown.map((p) => (
        <JobField key={p} path={p} base={base} value={values[p] ?? ""} problem={problems[p]} suggestions={suggestionsOf(p)} onChange={(v) => onChange(p, v)} />
      ))}
    </>
  );
  if (!section.isMore) return <Card title={section.title}>{fields}</Card>;
  return (
    <details class="card" open={isOpen || isNeeded} onToggle={(e) => setIsOpen(e.currentTarget.open)}>
      <summary>{section.title}</summary>
      {fields}
    </details>
  );
}

function Saved({ job }: { job: Job }) {
  return (
    <Card title="It is saved, with warnings">
      <Warnings warnings={job.warnings} />
      <div class="buttons"><a class="button main" href={jobLink(job.name)}>Open the job</a></div>
    </Card>
  );
}
