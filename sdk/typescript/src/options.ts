/** OptionNames has the name of every option of a type, so that the compiler finds one that is missing. */
export type OptionNames<T> = Record<keyof T, true>;

/** requireKnownOptions throws for an option that does not exist, and names the nearest one. */
export function requireKnownOptions(what: string, options: unknown, names: Record<string, true>): void {
  const fault = findUnknownOption(options, names);
  if (fault !== undefined) throw new TypeError(`${what}: ${fault}`);
}

/** findUnknownOption describes the first option that does not exist. Options that are undefined count too. */
export function findUnknownOption(options: unknown, names: Record<string, true>): string | undefined {
  if (typeof options !== "object" || options === null || Array.isArray(options)) return "want an object with options";
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(names, name));
  if (unknown === undefined) return undefined;
  return `no option ${JSON.stringify(unknown)}${suggestName(unknown, Object.keys(names))}`;
}

/** suggestName names the nearest of some names, or all if none is near. */
export function suggestName(wrong: string, names: readonly string[]): string {
  let nearest: string | undefined;
  let least = Math.max(2, Math.floor(wrong.length / 3)) + 1;
  for (const name of names) {
    const distance = editDistance(wrong.toLowerCase(), name.toLowerCase());
    if (distance < least) [nearest, least] = [name, distance];
  }
  return nearest === undefined ? `, want ${names.join(", ")}` : `, did you mean ${JSON.stringify(nearest)}?`;
}

/** editDistance is how many characters have to be inserted, deleted or replaced to make one text the other. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
