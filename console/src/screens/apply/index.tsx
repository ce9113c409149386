// Apply: files with jobs, what they would change field by field, and exactly that.
import "./apply.css";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { curlText, shellText } from "../../actions/action";
import { toFailure, type Failure } from "../../api/errors";
import { refusalOf } from "../../app/access";
import { loadDraft, saveDraft } from "../../app/drafts";
import { notify } from "../../app/notices";
import { anyNamespace, linkTo, listLink, namespace as chosen } from "../../app/routes";
import type { Screen } from "../../app/screen";
import { Card } from "../../components/card";
import { Commands } from "../../components/copy";
import { FieldDiff } from "../../components/field_diff";
import { Failed } from "../../components/messages";
import { State, type StateWord } from "../../components/state";
import { plural } from "../../format/text";
import { Warnings } from "../edit/warnings";
import { readFiles, type Fault, type TextFile } from "./manifest";
import { applyPlan, desiredOf, isChange, makePlan, type AppliedJob, type Plan, type PlannedJob } from "./plan";

const pasted = "pasted";
const draftName = "apply";
const longestCommand = 20_000;

function Apply() {
  const [files, setFiles] = useState<TextFile[]>(() => loadDraft(draftName) ?? []);
  const [namespace, setNamespace] = useState(chosen.value === anyNamespace ? "default" : chosen.value);
  const [owner, setOwner] = useState("");
  const [force, setForce] = useState(false);
  const [plan, setPlan] = useState<Plan>();
  const [applied, setApplied] = useState<AppliedJob[]>();
  const [failure, setFailure] = useState<Failure>();
  const [isBusy, setIsBusy] = useState(false);
  const inputs = useRef(0); // changes of the files: a plan of earlier ones is not shown
  // Before the browser draws them: what is shown is kept over a reload.
  useLayoutEffect(() => saveDraft(draftName, files.length > 0 ? files : undefined), [files]);
  const renew = () => {
    inputs.current++;
    setPlan(undefined), setApplied(undefined), setFailure(undefined);
  };
  const put = (added: TextFile[]) => {
    renew();
    setFiles((all) => [...all.filter((f) => !added.some((a) => a.name === f.name)), ...added].filter((f) => f.name !== pasted || f.text !== ""));
  };
  const run = async <T,>(work: () => Promise<T>, done: (result: T) => void) => {
    if (isBusy) return;
    const begun = inputs.current;
    setIsBusy(true), setFailure(undefined);
    try {
      const result = await work();
      if (begun === inputs.current) done(result);
    } catch (e) {
      if (begun === inputs.current) setFailure(toFailure(e));
    }
    setIsBusy(false);
  };
  const show = () => run(async () => makePlan(namespace, await readLater(files, namespace, owner), force), (p) => {
    setPlan(p), setApplied(undefined);
  });
  const apply = () => run(() => applyPlan(plan!), (result) => {
    setApplied(result);
    const wrong = result.filter((r) => r.change.code).length;
    notify(wrong ? `${plural(wrong, "job")} could not be changed.` : `${plural(result.length, "job")} applied.`);
  });
  return (
    <>
      <nav class="path soft" aria-label="Path"><a href={listLink("jobs", {})}>Jobs</a></nav>
      <h1>Apply files</h1>
      <div class="sections">
        <Card title="Files" note="YAML or JSON, as fermata apply reads them">
          <Files files={files} onPut={put} onRemove={(name) => { renew(); setFiles((all) => all.filter((f) => f.name !== name)); }} />
          <div class="row">
            <div class="field">
              <label for="apply-namespace">Namespace</label>
              <input id="apply-namespace" name="namespace" type="text" value={namespace} spellcheck={false} autocomplete="off"
                onInput={(e) => { renew(); setNamespace(e.currentTarget.value); }} />
            </div>
            <div class="field">
              <label for="apply-owner">Owner (optional)</label>
              <input id="apply-owner" name="owner" type="text" value={owner} spellcheck={false} autocomplete="off" maxLength={128}
                onInput={(e) => { renew(); setOwner(e.currentTarget.value); }} />
            </div>
            <div class="field check">
              <label for="apply-force">Take over jobs of other owners</label>
              <input id="apply-force" name="force" type="checkbox" checked={force} onChange={(e) => { renew(); setForce(e.currentTarget.checked); }} />
            </div>
          </div>
          <div class="buttons"><button type="button" class={plan ? undefined : "main"} data-plan disabled={files.length === 0} aria-busy={isBusy} onClick={() => void show()}>Show what changes</button></div>
        </Card>
        {failure && <Failed failure={failure} isAction />}
        {plan && !applied && <PlanCard plan={plan} owner={owner} files={files} isBusy={isBusy} onApply={() => void apply()} />}
        {plan && applied && <Applied plan={plan} applied={applied} />}
      </div>
    </>
  );
}

/** readLater reads the files after the button has been drawn as busy. */
const readLater = async (files: TextFile[], namespace: string, owner: string) => {
  await new Promise(requestAnimationFrame);
  return readFiles(files, namespace, owner);
};

function Files({ files, onPut, onRemove }: { files: TextFile[]; onPut: (files: TextFile[]) => void; onRemove: (name: string) => void }) {
  const [isOver, setIsOver] = useState(false);
  const take = async (list: FileList | null | undefined) => {
    const taken = await Promise.all([...(list ?? [])].map(async (f) => ({ name: f.name, text: await f.text() })));
    if (taken.length > 0) onPut(taken);
  };
  const drop = (e: DragEvent) => {
    e.preventDefault();
    setIsOver(false);
    void take(e.dataTransfer?.files);
  };
  return (
    <div class={`drop${isOver ? " over" : ""}`} onDragOver={(e) => { e.preventDefault(); setIsOver(true); }} onDragLeave={() => setIsOver(false)} onDrop={drop}>
      <div class="field">
        <label for="apply-files">Drop files here, or choose them</label>
        <input id="apply-files" type="file" multiple accept=".yaml,.yml,.json,.jsonl" onChange={(e) => { const input = e.currentTarget; void take(input.files).then(() => { input.value = ""; }); }} />
      </div>
      <ul class="times">
        {files.filter((f) => f.name !== pasted).map((f) => (
          <li key={f.name}><bdi class="id">{f.name}</bdi> <span class="soft">{plural(f.text.length, "character")}</span>
            <button type="button" class="quiet" aria-label={`Remove ${f.name}`} onClick={() => onRemove(f.name)}>Remove</button></li>
        ))}
      </ul>
      <div class="field">
        <label for="apply-text">Or paste them</label>
        <textarea id="apply-text" name="text" rows={8} spellcheck={false} value={files.find((f) => f.name === pasted)?.text ?? ""}
          onInput={(e) => onPut([{ name: pasted, text: e.currentTarget.value }])} />
      </div>
    </div>
  );
}

const actionWords: Record<string, StateWord> = {
  ACTION_CREATE: { tone: "ok", text: "is created" }, ACTION_UPDATE: { tone: "hold", text: "is changed" },
  ACTION_UNCHANGED: { tone: "idle", text: "stays as it is" }, ACTION_EXPIRED: { tone: "idle", text: "is not created: its time has passed" },
};

function PlanCard({ plan, owner, files, isBusy, onApply }: { plan: Plan; owner: string; files: TextFile[]; isBusy: boolean; onApply: () => void }) {
  if (plan.faults.length > 0) return <Faults faults={plan.faults} />;
  const changing = plan.jobs.filter(isChange);
  const refusal = refusalOf("ApplyJobs", { namespace: plan.namespace }) || (changing.length === 0 ? "There is nothing to change." : "");
  const created = changing.filter((p) => p.change.action === "ACTION_CREATE").length;
  const curl = curlText("ApplyJobs", { namespace: plan.namespace }, { desiredJobs: desiredOf(plan), force: plan.force });
  const names = files.filter((f) => f.name !== pasted).flatMap((f) => ["-f", f.name]);
  const summary = plan.jobs.length === 0 ? "The files have no job."
    : `${created} created, ${changing.length - created} changed, ${plan.jobs.length - changing.length} as they are.`;
  return (
    <Card title="Plan" note={plan.namespace}>
      <p role="status" class="finding"><b>{summary}</b> <span class="soft">A job that somebody else changes meanwhile is left alone.</span></p>
      {plan.jobs.map((p) => <PlannedEntry key={`${p.file} ${p.desired.jobId}`} planned={p} />)}
      {curl.length < longestCommand && changing.length > 0 && (
        <Commands cli={names.length ? shellText(["fermata", "apply", "--namespace", plan.namespace, ...names, ...(owner ? ["--owner", owner] : []), ...(plan.force ? ["--force"] : [])]) : ""} curl={curl} />
      )}
      <div class="buttons">
        <button type="button" class="main" data-apply aria-busy={isBusy} aria-disabled={refusal ? true : undefined} title={refusal || undefined}
          onClick={() => { if (refusal) notify(refusal); else onApply(); }}>Apply {plural(changing.length, "change")}</button>
      </div>
    </Card>
  );
}

function PlannedEntry({ planned }: { planned: PlannedJob }) {
  const { change, desired, file } = planned;
  const isPause = change.fields?.includes("paused");
  return (
    <details class="planned" open={isChange(planned)}>
      <summary><bdi class="id">{desired.jobId}</bdi> <State {...(actionWords[change.action ?? ""] ?? { tone: "idle", text: "" })} /> <span class="soft"><bdi>{file}</bdi></span></summary>
      <Warnings warnings={change.after?.warnings} />
      {change.payloadNotCompared && <p>Its payload is sealed and was not compared: you may not edit the job.</p>}
      {isPause && <p>{desired.paused ? "It is paused." : "It is resumed."}</p>}
      {isChange(planned) && <FieldDiff before={change.before} after={change.after} caption={`Changes of ${desired.jobId}`} />}
    </details>
  );
}

function Faults({ faults }: { faults: Fault[] }) {
  return (
    <div class="failed" role="alert">
      <p><strong>{plural(faults.length, "thing")} to correct. Nothing is changed.</strong></p>
      <ul>{faults.map((f, i) => <li key={i}><bdi class="id">{f.file}{f.line ? `:${f.line}` : ""}</bdi> {f.field && <code>{f.field}</code>} <bdi>{f.text}</bdi></li>)}</ul>
    </div>
  );
}

function Applied({ plan, applied }: { plan: Plan; applied: AppliedJob[] }) {
  const wrong = applied.filter((a) => a.change.code);
  return (
    <Card title="Applied">
      <p role="status" class="finding"><b>{plural(applied.length - wrong.length, "job")} applied{wrong.length ? `, ${wrong.length} refused` : ""}.</b></p>
      <ul class="times">
        {applied.map((a) => (
          <li key={a.id}>
            <a class="id" href={linkTo(["namespaces", plan.namespace, "jobs", a.id])}><bdi>{a.id}</bdi></a>
            {a.change.code ? <><State tone="bad" text="refused" /> <bdi>{a.change.message}</bdi></> : <State tone="ok" text="applied" />}
            {a.differs && <span class="state hold square">differs from the plan: look at it</span>}
            <Warnings warnings={a.change.after?.warnings} />
          </li>
        ))}
      </ul>
      {wrong.length > 0 && <p class="soft">Show what changes again: the plan then has the present state.</p>}
    </Card>
  );
}

/** ApplyLink leads to the screen. */
export const ApplyLink = () => <a class="button" data-apply-files href={listLink("apply", {})}>Apply files</a>;

export const applyScreen: Screen = { path: "apply", title: () => "Apply files", under: "jobs", view: Apply };
