// The button of an action, and its dialog.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { toFailure, type Failure } from "../api/errors";
import { refusalOf } from "../app/access";
import { notify } from "../app/notices";
import { Commands } from "../components/copy";
import { Dialog, focusFirstInput } from "../components/dialog";
import { Failed } from "../components/messages";
import { refreshAll } from "../live/query";
import type { Action, ActionField, Values, Variant } from "./action";

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
  const [isVariant, setIsVariant] = useState(false);
  const id = useId();
  const shown = isVariant && action.variant ? action.variant.action : action;
  const close = () => { setIsOpen(false); setIsVariant(false); };
  const refusal = refusalOf(action.method, action.scope(subject)) || action.unavailable(subject);
  return (
    <>
      <button type="button" class={main ? "main" : undefined} data-action={action.id} aria-disabled={refusal ? true : undefined}
        aria-describedby={refusal ? id : undefined} title={refusal || undefined}
        onClick={() => { if (refusal) notify(refusal); else setIsOpen(true); }}>
        {action.label}
      </button>
      {refusal && <span id={id} class="hidden">{refusal}</span>}
      <Dialog open={isOpen} title={shown.title(subject)} onClose={close}>
        {isOpen && <ActionForm key={shown.id} action={shown} subject={subject} onCancel={close}
          onVariant={() => setIsVariant(true)} onDone={() => { close(); onDone?.(); }} />}
      </Dialog>
    </>
  );
}

function ActionForm<S>({ action, subject, onCancel, onVariant, onDone }: {
  action: Action<S>; subject: S; onCancel: () => void; onVariant: () => void; onDone: () => void;
}) {
  // A variant takes the place of a form that had the focus.
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => focusFirstInput(form.current!), []);
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
    <form ref={form} onSubmit={(e) => void submit(e)} class="action">
      <p>{action.effect(subject, values)}</p>
      {fields.map((f) => (
        <FieldInput key={f.name} field={f} value={values[f.name]!}
          onChange={(v) => setValues((all) => ({ ...all, [f.name]: v }))} />
      ))}
      {failure && <Failed failure={failure} isAction />}
      <Commands cli={action.cliText(subject, values)} curl={action.curlText(subject, values)} />
      <div class="buttons">
        <button type="button" onClick={onCancel}>Cancel</button>
        {action.variant && <VariantButton variant={action.variant} subject={subject} onClick={onVariant} />}
        <button type="submit" class={action.isDestructive ? "main danger" : "main"} data-confirm aria-busy={isRunning}>
          {action.label.replace("…", "")}
        </button>
      </div>
    </form>
  );
}

/** VariantButton opens the form of a variant. If that action is not possible, it says why. */
function VariantButton<S>({ variant, subject, onClick }: { variant: Variant<S>; subject: S; onClick: () => void }) {
  const id = useId();
  const { action } = variant;
  const refusal = refusalOf(action.method, action.scope(subject)) || action.unavailable(subject);
  return (
    <>
      <button type="button" data-action={action.id} aria-disabled={refusal ? true : undefined}
        aria-describedby={refusal ? id : undefined} title={refusal || undefined}
        onClick={() => { if (refusal) notify(refusal); else onClick(); }}>
        {variant.label}
      </button>
      {refusal && <span id={id} class="hidden">{refusal}</span>}
    </>
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
            : field.kind === "lines"
              ? <textarea {...common} rows={Math.min(12, Math.max(3, value.split("\n").length))} value={value} spellcheck={false}
                onInput={(e) => onChange(e.currentTarget.value)} />
            : <input {...common} type="text" value={value} autocomplete="off" maxLength={field.maxLength}
              placeholder={field.kind === "duration" ? "such as 5m or 90s" : undefined}
              onInput={(e) => onChange(e.currentTarget.value)} />}
      {field.help && <p id={help} class="soft">{field.help}</p>}
    </div>
  );
}
