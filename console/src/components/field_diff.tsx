// What an edit or a file changes in a job, field by field.
import { jobMessages, type Job } from "../api/generated";
import { findDifferences, type Difference } from "../format/difference";
import { ChangeTable } from "./change_table";

/** withoutSources leaves out where the values of policies come from. */
function withoutSources(job: Job | undefined): Job {
  const plain = { ...job };
  for (const name of ["retryPolicy", "backoffPolicy"] as const) {
    const { sources: _sources, ...policy } = plain[name] ?? {};
    if (plain[name]) plain[name] = policy;
  }
  return plain;
}

/** diffOf are the values of the definition that differ. Without a job before, they are all that are set. */
export function diffOf(before: Job | undefined, after: Job | undefined): Difference[] {
  const from = withoutSources(before), to = withoutSources(after);
  const names = Object.keys(jobMessages["Job"]!).filter((name) => jobMessages["Job"]![name]!.kind !== "output") as Array<keyof Job>;
  const changed = names.filter((name) => JSON.stringify(from[name]) !== JSON.stringify(to[name]));
  return findDifferences(from, to, changed.map((name) => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)));
}

/** FieldDiff shows the values that differ. */
export function FieldDiff({ before, after, caption }: { before: Job | undefined; after: Job | undefined; caption: string }) {
  const changes = diffOf(before, after);
  if (changes.length === 0) return null;
  return <div class="diff"><ChangeTable caption={caption} from="Before" to="After" changes={changes} /></div>;
}
