import { listLink } from "../app/routes";
import { Empty } from "../components/messages";

/** NotFound is shown for a path without a screen. */
export const NotFound = () => (
  <Empty title="There is no such page">
    <p>The link may be of another version. Go to the <a href={listLink("", {})}>overview</a> or the
      {" "}<a href={listLink("jobs", {})}>jobs</a>.</p>
  </Empty>
);
