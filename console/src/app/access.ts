// Who the caller is, and what the nodes allow. The nodes decide: this only explains in advance.
import { signal } from "@preact/signals";
import { call, noteSession } from "../api/client";
import { methods, rolePermissions, type MethodName, type RoleGrant, type WhoAmIResponse } from "../api/generated";

/** ServerConfig is what the gateway says of itself, before anybody has signed in. */
export interface ServerConfig {
  version?: string;
  /** readOnly: the console takes no action. */
  readOnly?: boolean;
  /** links are templates of URLs in other systems. */
  links?: { trace?: string; logs?: string };
  /** signIn are the ways to sign in; none: the gateway acts with a credential of its own, or the nodes ask for none. */
  signIn?: { token?: boolean; provider?: string };
}

/** serverConfig is read at the start. */
export const serverConfig = signal<ServerConfig>({});

/** caller is who makes the calls; undefined until it is known. */
export const caller = signal<WhoAmIResponse | undefined>(undefined);

/** isSignedOut: the nodes ask for a credential. */
export const isSignedOut = signal(false);

/** learnCaller asks who the caller is. It throws a Failure. */
export async function learnCaller(): Promise<void> {
  caller.value = await call("WhoAmI", {});
  noteSession();
  isSignedOut.value = false;
}

/** Scope is what an action is about. */
export interface Scope {
  namespace?: string;
  queue?: string;
}

const matches = (pattern: string, name: string) =>
  pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : pattern === name;

function covers(grant: RoleGrant, scope: Scope, allNamespaces: boolean): boolean {
  const namespaces = grant.namespaces ?? [];
  if (allNamespaces) return namespaces.includes("*");
  if (scope.namespace && !namespaces.some((p) => matches(p, scope.namespace!))) return false;
  const queues = grant.queues ?? [];
  return !scope.queue || queues.length === 0 || queues.some((p) => matches(p, scope.queue!));
}

/** refusalOf says why the caller may not call a method; "" if it may. */
export function refusalOf(name: MethodName, scope: Scope): string {
  const method = methods[name];
  if (serverConfig.value.readOnly && method.verb !== "GET" && !readsOnly.has(name)) return "This console is read-only.";
  const who = caller.value;
  if (!who || who.authentication === "AUTHENTICATION_NONE" || method.permission === "anyone") return "";
  const allowed = (who.grants ?? []).some((g) =>
    (rolePermissions[g.role ?? ""] ?? []).includes(method.permission) && covers(g, scope, !!method.allNamespaces));
  if (allowed) return "";
  const where = method.allNamespaces ? "for all namespaces" : `in ${scope.namespace ?? "this namespace"}`;
  return `You need the permission to ${method.permission} ${where}${scope.queue ? ` for queue ${scope.queue}` : ""}.`;
}

/** readsOnly are the methods with the verb POST that change nothing. */
const readsOnly = new Set<MethodName>(["PreviewSchedule", "PlanJobs"]);

/** roleOf is the strongest role of the caller in words. */
export function roleOf(who: WhoAmIResponse): string {
  if (who.authentication === "AUTHENTICATION_NONE") return "full access";
  const roles = new Set((who.grants ?? []).map((g) => g.role));
  return ["admin", "editor", "operator", "viewer"].find((r) => roles.has(r)) ?? "no role";
}
