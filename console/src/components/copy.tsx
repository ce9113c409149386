// Commands that do the same as a button, to be copied.
import { notify } from "../app/notices";

/** CopyButton copies a text. */
export function CopyButton({ text, label }: { text: string; label: string }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      notify("Copied.");
    } catch {
      notify("The browser does not allow to copy here: select the text instead.");
    }
  };
  return <button type="button" class="quiet" onClick={() => void copy()}>{label}</button>;
}

/** Commands shows an action as commands of the CLI and of curl. */
export function Commands({ cli, curl }: { cli: string; curl: string }) {
  return (
    <details class="commands">
      <summary>As a command</summary>
      {cli && <Command text={cli} label="Copy as CLI" />}
      <Command text={curl} label="Copy as curl" />
    </details>
  );
}

function Command({ text, label }: { text: string; label: string }) {
  return <div class="command"><pre tabIndex={0}>{text}</pre><CopyButton text={text} label={label} /></div>;
}
