import { parseJobName } from "../api/names";
import { anyNamespace, jobLink, namespace } from "../app/routes";

/** JobLink is a job by its resource name, with its namespace where lists show several. */
export function JobLink({ name }: { name: string | undefined }) {
  const n = parseJobName(name);
  return (
    <a class="id" href={jobLink(name)} title={n.job}>
      {namespace.value === anyNamespace && n.namespace !== "default" && <span class="soft">{n.namespace}/</span>}
      <bdi>{n.job}</bdi>
    </a>
  );
}

/** ErrorText is the text of an error on one line; its title has all of it. */
export const ErrorText = ({ text }: { text: string | undefined }) =>
  text ? <span class="error-text" title={text.slice(0, 2000)}><bdi>{text.split("\n", 1)[0]!.slice(0, 300)}</bdi></span> : null;
