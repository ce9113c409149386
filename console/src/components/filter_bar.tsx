// The filter of a list: a text in the language of the server, with completion.
import { useEffect, useId, useRef, useState } from "preact/hooks";

/** FilterField is a field of the language, for completion. */
export interface FilterField {
  name: string;
  help: string;
  /** values are what it may be compared with, as far as they are known. */
  values?: string[];
  /** operators that make sense; "=" without. */
  operators?: string[];
}

export interface FilterBarProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  fields: FilterField[];
  placeholder?: string;
  /** error is that of the server about the filter. */
  error?: string;
}

interface Suggestion {
  text: string;
  help: string;
}

const typingDelay = 400;

/** FilterBar is the text field of a filter. Enter applies it at once, typing after a moment. */
export function FilterBar(p: FilterBarProps) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(p.value);
  const [choice, setChoice] = useState(-1);
  const [isOpen, setIsOpen] = useState(false);
  const timer = useRef(0);
  useEffect(() => {
    if (document.activeElement !== input.current) setText(p.value);
  }, [p.value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const found = isOpen ? suggest(text, input.current?.selectionStart ?? text.length, p.fields) : [];

  const apply = (value: string) => {
    clearTimeout(timer.current);
    p.onChange(value.trim());
  };
  const change = (value: string) => {
    setText(value);
    setChoice(-1);
    setIsOpen(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => apply(value), typingDelay);
  };
  const accept = (s: Suggestion) => {
    const next = complete(text, input.current?.selectionStart ?? text.length, s.text);
    setText(next.text);
    setChoice(-1);
    input.current?.focus();
    requestAnimationFrame(() => input.current?.setSelectionRange(next.at, next.at));
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key === "Escape" && isOpen) {
      setIsOpen(false);
    } else if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      e.preventDefault();
      if (!isOpen) setIsOpen(true);
      else setChoice((c) => Math.max(-1, Math.min(found.length - 1, c + (e.key === "ArrowDown" ? 1 : -1))));
    } else if ((e.key === "Enter" || e.key === "Tab") && choice >= 0 && found[choice]) {
      e.preventDefault();
      accept(found[choice]);
    } else if (e.key === "Enter") {
      setIsOpen(false);
      apply(text);
    }
  };
  return (
    <div class="filter">
      <input ref={input} type="text" role="combobox" aria-label={p.label} aria-expanded={found.length > 0}
        aria-controls={`${id}-list`} aria-autocomplete="list" aria-invalid={p.error ? true : undefined}
        aria-describedby={p.error ? `${id}-error` : undefined}
        aria-activedescendant={choice >= 0 ? `${id}-${choice}` : undefined}
        autocomplete="off" autocapitalize="off" spellcheck={false} placeholder={p.placeholder} value={text} data-find
        onInput={(e) => change(e.currentTarget.value)} onKeyDown={onKeyDown} onFocus={() => setIsOpen(true)}
        onBlur={() => setIsOpen(false)} />
      <ul id={`${id}-list`} role="listbox" aria-label="Completions" hidden={found.length === 0}>
        {found.map((s, i) => (
          <li key={s.text} id={`${id}-${i}`} role="option" aria-selected={i === choice}
            onPointerDown={(e) => { e.preventDefault(); accept(s); }}>
            <code>{s.text}</code> <span class="soft">{s.help}</span>
          </li>
        ))}
      </ul>
      {p.error && <p id={`${id}-error`} class="invalid" role="alert">{p.error}</p>}
    </div>
  );
}

const maxSuggestions = 8;

/** suggest are completions of the word before the cursor. */
function suggest(text: string, at: number, fields: FilterField[]): Suggestion[] {
  const before = text.slice(0, at);
  const comparison = /([\w.]+)\s*(=|!=|<=|>=|<|>|:)\s*("?[^\s"()]*)$/.exec(before);
  if (comparison) {
    const field = fields.find((f) => f.name === comparison[1]);
    const typed = comparison[3]!.replace(/^"/, "").toLowerCase();
    return (field?.values ?? []).filter((v) => v.toLowerCase().includes(typed) && v !== typed)
      .slice(0, maxSuggestions).map((v) => ({ text: quoteValue(v), help: "" }));
  }
  const word = /[\w.]*$/.exec(before)![0].toLowerCase();
  if (word === "" && before.trim() !== "" && !/(AND|OR|NOT|\()\s*$/.test(before)) {
    return [{ text: "AND", help: "both" }, { text: "OR", help: "either; binds tighter than AND" }];
  }
  return fields.filter((f) => f.name.includes(word) && f.name !== word).slice(0, maxSuggestions)
    .map((f) => ({ text: `${f.name} ${f.operators?.[0] ?? "="}`, help: f.help }));
}

const quoteValue = (v: string) => (/^[\w.-]+$/.test(v) ? v : `"${v.replace(/(["\\])/g, "\\$1")}"`);

/** complete replaces the word before the cursor. */
function complete(text: string, at: number, by: string): { text: string; at: number } {
  const before = text.slice(0, at).replace(/"?[^\s"()=<>:!]*$/, "");
  const next = `${before}${by} `;
  return { text: next + text.slice(at).replace(/^\S*\s*/, ""), at: next.length };
}
