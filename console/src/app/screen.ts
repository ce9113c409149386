// What a screen is. screens/index.ts lists all of them.
import type { ComponentType } from "preact";

/** ScreenProps are the values of the path's parameters. */
export interface ScreenProps {
  params: Record<string, string>;
}

/** Screen is one page of the console. */
export interface Screen {
  /** path after the #, with parameters: "namespaces/:namespace/jobs/:job". */
  path: string;
  /** title of the document. */
  title: (params: Record<string, string>) => string;
  /** nav is its name in the navigation; unset: it is reached by links. */
  nav?: string;
  /** key opens it after "g". */
  key?: string;
  /** under is the path of the screen of the navigation to which it belongs. */
  under?: string;
  view: ComponentType<ScreenProps>;
}

/** matchScreen returns the parameters of a path; undefined if it is another screen's. */
export function matchScreen(screen: Screen, path: string[]): Record<string, string> | undefined {
  const pattern = screen.path.split("/").filter(Boolean);
  if (pattern.length !== path.length) return undefined;
  const params: Record<string, string> = {};
  for (const [i, part] of pattern.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = path[i]!;
    else if (part !== path[i]) return undefined;
  }
  return params;
}
