// Horizontal bars: counts by name, each a link.
import { formatCount } from "../format/text";
import type { Tone } from "./state";

/** Bar is one count. */
export interface Bar {
  name: string;
  count: number;
  tone: Tone;
  href?: string;
}

/** Bars compares counts. */
export function Bars({ bars, label }: { bars: Bar[]; label: string }) {
  const most = Math.max(1, ...bars.map((b) => b.count));
  return (
    <table class="bars" aria-label={label}>
      <tbody>
        {bars.map((b) => (
          <tr key={b.name}>
            <th scope="row">{b.href && b.count > 0 ? <a href={b.href}>{b.name}</a> : b.name}</th>
            <td>
              <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
                <rect class={b.tone} width={(b.count / most) * 100} height="10" />
              </svg>
            </td>
            <td class="num">{formatCount(b.count)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
