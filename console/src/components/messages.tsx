// What is shown in place of data: nothing there, not yet, or an error with what to do.
import type { ComponentChildren } from "preact";
import { adviceFor, adviceForAction, type Failure } from "../api/errors";
import { formatDistance } from "../format/duration";
import { second } from "../live/clock";
import type { Query } from "../live/query";

/** Empty says that there is nothing, and its children say what to do next. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><h2>{title}</h2>{children}</div>;
}

/** Failed is an error, and what a person can do about it. */
export function Failed({ failure, what, retry, isAction }: {
  failure: Failure; what?: string; retry?: () => void;
  /** isAction: nothing tries it again but the person. */
  isAction?: boolean;
}) {
  return (
    <div class="failed" role="alert">
      <p><strong>{what ? `${what}: ` : ""}{failure.message}</strong></p>
      <p>{isAction ? adviceForAction(failure) : adviceFor(failure)} {retry && <button type="button" onClick={retry}>Try again</button>}</p>
    </div>
  );
}

/** Loading keeps the place of data that is not there yet, so that nothing moves when it comes. */
export function Loading({ lines = 4 }: { lines?: number }) {
  return (
    <div class="loading" role="status">
      <span class="hidden">Loading</span>
      {Array.from({ length: lines }, (_, i) => <span key={i} class="bone" />)}
    </div>
  );
}

/**
 * Loaded shows the data of a query: while it loads for the first time a placeholder, after an error the last data with
 * its age.
 */
export function Loaded<T>({ query, lines, what, children }: {
  query: Query<T>; lines?: number; what?: string; children: (data: T) => ComponentChildren;
}) {
  const data = query.data.value;
  const error = query.error.value;
  if (data === undefined) {
    return error ? <Failed failure={error} what={what} retry={() => void query.refresh()} /> : <Loading lines={lines} />;
  }
  return (
    <>
      {error && <Stale failure={error} since={query.loadedAt.value} />}
      {children(data)}
    </>
  );
}

function Stale({ failure, since }: { failure: Failure; since: number }) {
  return (
    <p class="stale" role="status">
      As of {formatDistance(since, second.value)}. {failure.message} {failure.isTransient ? "Trying again." : adviceFor(failure)}
    </p>
  );
}
