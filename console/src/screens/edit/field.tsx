import { useId } from "preact/hooks";
import type { Job } from "../../api/generated";
import { payloadText } from "../../format/payload";
import { wordsOf } from "../../format/text";
import { infoOf, labelOf } from "./fields";
import { sourceOf } from "./values";

export interface JobFieldProps {
  path: string;
  /** base is the job as it is stored: its values that come from defaults are shown as such. */
  base: Job;
  value: string;
  problem: string | undefined;
  /** suggestions are the id of a list of values. */
  suggestions?: string;
  onChange: (value: string) => void;
}

/** JobField is one field with its default, its help from the API reference, and what is wrong with it. */
export function JobField({ path, base, value, problem, suggestions, onChange }: JobFieldProps) {
  const id = useId();
  const info = infoOf(path);
  const inherited = inheritedText(base, path);
  const common = {
    id, name: path, "data-field": path, "aria-invalid": problem ? true as const : undefined,
    "aria-describedby": problem ? `${id}-problem ${id}-help` : `${id}-help`,
  };
  const isLong = ["texts", "numbers", "labels", "messages", "bytes"].includes(info.kind);
  return (
    <div class={`field ${info.kind === "flag" ? "check" : ""}`}>
      <label for={id}>{labelOf(path)}</label>
      {info.kind === "flag"
        ? <input {...common} type="checkbox" checked={value === "true"} onChange={(e) => onChange(e.currentTarget.checked ? "true" : "")} />
        : info.kind === "choice"
          ? <Choice common={common} values={info.values!} fallback={inherited || info.default} value={value} onChange={onChange} />
          : isLong
            ? <textarea {...common} rows={Math.min(12, Math.max(2, value.split("\n").length))} value={value} spellcheck={false}
              placeholder={info.kind === "labels" ? "key=value, one on a line" : info.kind === "bytes" ? payloadNote(base) : "one on a line"}
              onInput={(e) => onChange(e.currentTarget.value)} />
            : <input {...common} type="text" value={value} autocomplete="off" spellcheck={false} list={suggestions}
              placeholder={inherited || info.default} onInput={(e) => onChange(e.currentTarget.value)} />}
      {problem && <p id={`${id}-problem`} class="invalid">{problem}</p>}
      <p id={`${id}-help`} class="soft"><HelpText text={info.help ?? ""} /></p>
    </div>
  );
}

/** payloadNote says that a payload is there which the form cannot show. */
function payloadNote(base: Job): string {
  if (base.payloadSealed) return "It is sealed, and stays unless you type another one.";
  return base.payload && payloadText(base.payload) === undefined ? "It is not text, and stays unless you type another one." : "";
}

function Choice({ common, values, fallback, value, onChange }: {
  common: object; values: string[]; fallback: string | undefined; value: string; onChange: (v: string) => void;
}) {
  const prefix = values[0]!.replace(/UNSPECIFIED$/, "");
  const words = (v: string) => wordsOf(v, prefix);
  return (
    <select {...common} value={value} onChange={(e) => onChange(e.currentTarget.value)}>
      <option value="">{fallback?.startsWith(prefix) ? `default: ${words(fallback)}` : "default"}</option>
      {values.slice(1).map((v) => <option key={v} value={v}>{words(v)}</option>)}
    </select>
  );
}

/** inheritedText is the value of a policy that does not come from the job, with its source. */
function inheritedText(base: Job, path: string): string {
  const [top, name, inner] = path.split(".");
  const source = sourceOf(base, path);
  if (source === "job" || !name) return "";
  const policy = base[top as "retryPolicy"] as Record<string, unknown> | undefined;
  const value = inner ? (policy?.[name] as Record<string, unknown> | undefined)?.[inner] : policy?.[name];
  return value === undefined ? "" : `${String(value)} (${source})`;
}

/** HelpText is a comment of the API reference: names in backticks are code. */
export const HelpText = ({ text }: { text: string }) => (
  <>{text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>
);
