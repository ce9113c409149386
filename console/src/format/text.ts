// Words and numbers.

const number = new Intl.NumberFormat("en-GB");

/** formatCount is a whole number of the API, which may be a string: 12,408. */
export const formatCount = (n: number | string | undefined): string => number.format(Number(n ?? 0));

/** plural is a count with its noun: 1 job, 40 jobs. */
export function plural(n: number | string | undefined, noun: string, nouns = noun + "s"): string {
  return `${formatCount(n)} ${Number(n ?? 0) === 1 ? noun : nouns}`;
}

/** wordsOf is an enum value in words: OVERLAP_POLICY_SKIP without the prefix is "skip". */
export const wordsOf = (value: string | undefined, prefix: string): string =>
  (value ?? "").replace(prefix, "").toLowerCase().replaceAll("_", " ");

/** firstLine is the first line of a text of several. */
export const firstLine = (text: string | undefined): string => (text ?? "").split("\n", 1)[0]!;

/** quoteText is a text as a string of the filter language, without wildcards. */
export const quoteText = (text: string): string => `"${escapeText(text)}"`;

const escapeText = (text: string): string => text.replace(/(["\\*])/g, "\\$1");

/** quoteParts are parts of a text, with anything between them, as a string of the filter language. */
export const quoteParts = (parts: string[]): string => `"${parts.map(escapeText).join("*")}"`;
