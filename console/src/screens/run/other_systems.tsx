// Links from a run to traces and logs, by the templates of the gateway (--console-trace-url, --console-logs-url).
import { serverConfig } from "../../app/access";

/** LinkFields are what a template may name; what a run does not have is undefined. */
export interface LinkFields {
  trace_id: string | undefined;
  correlation_id: string | undefined;
  namespace: string;
  job: string;
  run: string;
}

/** OtherSystems are the links of a run. One whose fields the run does not have is left out. */
export function OtherSystems({ fields }: { fields: LinkFields }) {
  const links = serverConfig.value.links ?? {};
  const shown = [["Trace", links.trace], ["Logs", links.logs]] as const;
  return (
    <>
      {shown.map(([name, template]) => {
        const href = template && fillTemplate(template, fields);
        return href ? <a key={name} class="button" href={href} target="_blank" rel="noreferrer">{name} ↗</a> : null;
      })}
    </>
  );
}

/** hasLinks: the gateway has a template that the run can fill. */
export function hasLinks(fields: LinkFields): boolean {
  const links = serverConfig.value.links ?? {};
  return [links.trace, links.logs].some((template) => template && fillTemplate(template, fields) !== undefined);
}

/** fillTemplate puts the fields of a run into a template; undefined if the run lacks one that it names. */
export function fillTemplate(template: string, fields: LinkFields): string | undefined {
  let lacks = false;
  const filled = template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = fields[name as keyof LinkFields];
    if (!value) lacks = true;
    return encodeURIComponent(value ?? "");
  });
  return lacks ? undefined : filled;
}
