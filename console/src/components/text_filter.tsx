import { setQuery } from "../app/routes";

/** TextFilter is a filter of a list that is a text: it is in the query of the place. */
export const TextFilter = ({ name, label, value }: { name: string; label: string; value: string }) => (
  <input type="text" aria-label={label} placeholder={label} defaultValue={value} class="small" spellcheck={false}
    onChange={(e) => setQuery({ [name]: e.currentTarget.value.trim() || undefined })} />
);
