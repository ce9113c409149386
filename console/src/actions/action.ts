// What an action is: one place for its method, permission, form, effect in words, and commands.
import { apiBase, call, pathOf, type Body, type Params, type Result } from "../api/client";
import { methods, type MethodName } from "../api/generated";
import type { Scope } from "../app/access";

/** Values are what was entered into the form of an action. */
export type Values = Record<string, string>;

/** ActionField is a field of the form. */
export interface ActionField {
  name: string;
  label: string;
  help?: string;
  kind: "text" | "lines" | "choice" | "check" | "duration" | "time";
  options?: Array<{ value: string; text: string }>;
  initial?: string;
  required?: boolean;
  maxLength?: number;
}

/** ActionSpec describes an action on a subject, a job for instance. */
export interface ActionSpec<M extends MethodName, S> {
  /** id is unique, for tests and keys. */
  id: string;
  /** label of the button; with "…" if a dialog follows. */
  label: string;
  method: M;
  /** title of the dialog. */
  title: (subject: S) => string;
  /** effect says what will happen, in sentences. */
  effect: (subject: S, values: Values) => string;
  fields?: (subject: S) => ActionField[];
  /** scope is what the caller needs the permission for. */
  scope: (subject: S) => Scope;
  /** unavailable says why the state does not allow it; "" if it does. */
  unavailable?: (subject: S) => string;
  params: (subject: S, values: Values) => Params<M>;
  body?: (subject: S, values: Values, requestId: string) => Body<M>;
  etag?: (subject: S) => string | undefined;
  /** cli are the arguments of the command fermata that does the same. */
  cli: (subject: S, values: Values) => string[];
  /** done says what was done. */
  done: (subject: S, result: Result<M>) => string;
  /** isDestructive: it cannot be undone. */
  isDestructive?: boolean;
  /** variant is an action that the dialog of this one offers in its place. */
  variant?: Variant<S>;
}

/** Variant is an action that takes the place of another one in its dialog; label is of the button for that. */
export interface Variant<S> {
  label: string;
  action: Action<S>;
}

/** Action is an ActionSpec whose method does not matter to those who show it. */
export interface Action<S> {
  id: string;
  label: string;
  method: MethodName;
  title: (subject: S) => string;
  effect: (subject: S, values: Values) => string;
  fields: (subject: S) => ActionField[];
  scope: (subject: S) => Scope;
  unavailable: (subject: S) => string;
  isDestructive: boolean;
  variant: Variant<S> | undefined;
  /** run takes the action. It throws a Failure. It returns what was done. */
  run: (subject: S, values: Values, requestId: string) => Promise<string>;
  cliText: (subject: S, values: Values) => string;
  curlText: (subject: S, values: Values) => string;
}

/** defineAction makes an action of its description. */
export function defineAction<M extends MethodName, S>(spec: ActionSpec<M, S>): Action<S> {
  return {
    id: spec.id, label: spec.label, method: spec.method, title: spec.title, effect: spec.effect, scope: spec.scope,
    fields: spec.fields ?? (() => []), unavailable: spec.unavailable ?? (() => ""), isDestructive: !!spec.isDestructive,
    variant: spec.variant,
    run: async (subject, values, requestId) => {
      const result = await call(spec.method, spec.params(subject, values), spec.body?.(subject, values, requestId),
        { requestId, etag: spec.etag?.(subject) });
      return spec.done(subject, result);
    },
    cliText: (subject, values) => shellText(["fermata", ...spec.cli(subject, values)]),
    curlText: (subject, values) =>
      curlText(spec.method, spec.params(subject, values), spec.body?.(subject, values, ""), spec.etag?.(subject)),
  };
}

/** shellText quotes the words of a command for a shell. */
export const shellText = (words: string[]): string =>
  words.map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replaceAll("'", `'\\''`)}'`)).join(" ");

/** curlText is a call as a command. The token stays out of it. */
export function curlText(name: MethodName, params: object, body: unknown, etag?: string): string {
  const words = ["curl", "-X", methods[name].verb];
  if (etag) words.push("-H", `If-Match: "${etag}"`);
  if (body !== undefined) {
    // Fields that are not set have no place in a command.
    words.push("-H", "Content-Type: application/json", "-d", JSON.stringify(withoutUnset(body)));
  }
  const text = shellText([...words, apiBase + pathOf(name, params)]);
  return text.replace("curl", `curl -H "Authorization: Bearer $FERMATA_TOKEN"`);
}

function withoutUnset(body: unknown): unknown {
  return Object.fromEntries(Object.entries(body as object).filter(([, v]) => v !== undefined && v !== "" && v !== false));
}
