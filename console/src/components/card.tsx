import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

/** Card is a part of a screen with a heading. */
export function Card({ title, note, aside, children, span }: {
  title: string; note?: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren;
  /** span: it takes the whole width. */
  span?: boolean;
}) {
  const id = useId();
  return (
    <section class={`card${span ? " span" : ""}`} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}{note && <span class="soft"> {note}</span>}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

/** Sentence is the state of a screen in one sentence: what a person must know first. */
export function Sentence({ children }: { children: ComponentChildren }) {
  return <p class="sentence">{children}</p>;
}
