import { BulkButton } from "./dialog";
import { bulkKinds, type BulkKind } from "./kinds";

/** BulkButtons are the changes of all that a list shows, on all of its pages. */
export function BulkButtons({ isAbout, namespace, filter, isEditable }: {
  isAbout: BulkKind["isAbout"]; namespace: string; filter: string; isEditable?: boolean;
}) {
  return (
    <details class="bulk-menu">
      <summary>Change {filter ? "all matches" : `all ${isAbout}`}</summary>
      <div class="bulk" role="group" aria-label={`Change ${filter ? "all matches" : `all ${isAbout}`}`}>
        {bulkKinds.filter((k) => k.isAbout === isAbout).map((k) =>
          <BulkButton key={k.method} kind={k} namespace={namespace} filter={filter} isEditable={isEditable} />)}
      </div>
    </details>
  );
}
