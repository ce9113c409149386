// YAML as the command line reads it. Where the browser could not keep a value exactly, it refuses it.
import {
  CORE_SCHEMA, defineMappingTag, defineScalarTag, floatCoreTag, intCoreTag, loadAll, mapTag, mergeTag, NOT_RESOLVED, timestampTag,
} from "js-yaml";

const wholePattern = /^[-+]?(0[xX][\da-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9]\d*)$/;
const floatPattern = /^[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?$/;

/** wholeOf reads 0x1f, 0o17, 0b11 and, as the command line does, 017 as octal. */
function wholeOf(source: string): number | typeof NOT_RESOLVED {
  const plain = source.replaceAll("_", "");
  if (!wholePattern.test(plain)) return NOT_RESOLVED;
  const digits = plain.replace(/^[-+]/, "");
  const value = Number(/^0\d/.test(digits) ? `0o${digits.slice(1)}` : digits);
  if (!Number.isSafeInteger(value)) throw new Error(`the number ${source} is too large to be kept exactly: quote it, or use the command fermata apply`);
  return plain.startsWith("-") ? -value : value;
}

const numbers = [..."-+.0123456789"];
const wholeTag = defineScalarTag<number>(intCoreTag.tagName, { ...intCoreTag, implicitFirstChars: numbers, resolve: wholeOf });
const floatTag = defineScalarTag<number>(floatCoreTag.tagName, {
  ...floatCoreTag, implicitFirstChars: numbers,
  resolve: (source, isExplicit, tagName) => {
    const plain = source.replaceAll("_", "");
    return floatPattern.test(plain) ? Number(plain) : floatCoreTag.resolve(source, isExplicit, tagName);
  },
});

/** textKeys refuses keys that are no text: 007 as an id would become 7. */
const textKeys = defineMappingTag(mapTag.tagName, {
  ...mapTag,
  addPair: (into, key, value) => (typeof key === "string" ? mapTag.addPair(into, key, value) : `has the key ${String(key)}, which is no text: quote it`),
});

const schema = CORE_SCHEMA.withTags(mergeTag, timestampTag, wholeTag, floatTag, textKeys);

/** readYaml returns the documents of a text. Times are of type Date. It throws what is wrong. */
export const readYaml = (text: string): unknown[] => loadAll(text, { schema, maxDepth: 64, maxAliases: 1000 });
