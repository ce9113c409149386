import type { ComponentChildren } from "preact";

/** Facts are names with values. Those without a value are left out. */
export const Facts = ({ facts }: { facts: Array<[string, ComponentChildren]> }) => (
  <dl class="facts">{facts.filter(([, v]) => v).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
);
