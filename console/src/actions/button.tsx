// The button of an action, and its dialog.
import { useId, useRef, useState } from "preact/hooks";
import { toFailure, type Failure } from "../api/errors";
import { refusalOf } from "../app/access";
import { notify } from "../app/notices";
import { Commands } from "../components/copy";
import { Dialog } from "../components/dialog";
import { Failed } from "../components/messages";
import { refreshAll } from "../live/query";
import type { Action, ActionField, Values } from "./action";

export interface ActionButtonProps<S> {
  action: Action<S>;
  subject: S;
  /** main: the action that most people want here. */
  main?: boolean;
  /** onDone is called after it was taken. */
  onDone?: () => void;
}

/** ActionButton opens the dialog of an action. If the action is not possible, it says why. */
export function ActionButton<S>({ action, subject, main, onDone }: ActionButtonProps<S>) {
  const [isOpen, setIsOpen] = useState(false);
  const id = useId();
  const refusal = refusalOf(action.method, action.scope(subject)) || action.unavailable(subject);
  return (
    <>
      <button type="button" class={main ? "main" : undefined} data-action={action.id} aria-disabled={refusal ? true : undefined}
        aria-describedby={refusal ? id : undefined} title={refusal || undefined}
        onClick={() => { if (refusal) notify(refusal); else setIsOpen(true); }}>
        {action.label}
      </button>
      {refusal && <span id={id} class="hidden">{refusal}</span>}
      <Dialog open={isOpen} title={action.title(subject)} onClose={() => setIsOpen(false)}>
        {isOpen && <ActionForm action={action} subject={subject} onCancel={() => setIsOpen(false)}
          onDone={() => { setIsOpen(false); onDone?.(); }} />}
      </Dialog>
    </>
  );
}

function ActionForm<S>({ action, subject, onCancel, onDone }: {
  action: Action<S>; subject: S; onCancel: () => void; onDone: () => void;
}) {
  const fields = action.fields(subject);
  const [values, setValues] = useState<Values>(() => Object.fromEntries(fields.map((f) => [f.name, f.initial ?? ""])));
  const [failure, setFailure] = useState<Failure>();
  const [isRunning, setIsRunning] = useState(false);
  // One id for all attempts of this dialog: a repetition after a lost response has no second effect.
  const requestId = useRef(crypto.randomUUID());
  const submit = async (e: Event) => {
    e.preventDefault();
    if (isRunning) return;
    setIsRunning(true);
    setFailure(undefined);
    try {
      const done = await action.run(subject, values, requestId.current);
      notify(done);
      onDone();
      void refreshAll();
    } catch (error) {
      setFailure(toFailure(error));
      setIsRunning(false);
    }
  };
  return (
    <form onSubmit={(e) => void submit(e)} class="action">
      <p>{action.effect(subject, values)}</p>
      {fields.map((f) => (
        <FieldInput key={f.name} field={f} value={values[f.name]!}
          onChange={(v) => setValues((all) => ({ ...all, [f.name]: v }))} />
      ))}
      {failure && <Failed failure={failure} isAction />}
      <Commands cli={action.cliText(subject, values)} curl={action.curlText(subject, values)} />
      <div class="buttons">
        <button type="button" onClick={onCancel}>Cancel</button>
        <button type="submit" class={action.isDestructive ? "main danger" : "main"} data-confirm aria-busy={isRunning}>
          {action.label.replace("…", "")}
        </button>
      </div>
    </form>
  );
}

/** FieldInput is the input of one field with its label and help. */
export function FieldInput({ field, value, onChange }: { field: ActionField; value: string; onChange: (v: string) => void }) {
  const id = useId();
  const help = field.help ? `${id}-help` : undefined;
  const common = { id, name: field.name, required: field.required, "aria-describedby": help };
  return (
    <div class={`field ${field.kind}`}>
      <label for={id}>{field.label}</label>
      {field.kind === "choice"
        ? <select {...common} value={value} onChange={(e) => onChange(e.currentTarget.value)}>
          {field.options!.map((o) => <option key={o.value} value={o.value}>{o.text}</option>)}
        </select>
        : field.kind === "check"
          ? <input {...common} type="checkbox" checked={value === "true"}
            onChange={(e) => onChange(String(e.currentTarget.checked))} />
          : field.kind === "time"
            ? <input {...common} type="datetime-local" step={1} value={value} onInput={(e) => onChange(e.currentTarget.value)} />
            : <input {...common} type="text" value={value} autocomplete="off" maxLength={field.maxLength}
              placeholder={field.kind === "duration" ? "such as 5m or 90s" : undefined}
              onInput={(e) => onChange(e.currentTarget.value)} />}
      {field.help && <p id={help} class="soft">{field.help}</p>}
    </div>
  );
}
