// A call that follows what is typed: after a pause, one at a time; the last result stays until the next.
import { useEffect, useState } from "preact/hooks";
import { toFailure, type Failure } from "../../api/errors";

/** Latest is the last result of a call, or its failure. */
export interface Latest<T> {
  data?: T;
  failure?: Failure;
  /** isOld: the inputs have changed since. */
  isOld: boolean;
}

const pause = 350; // milliseconds after the last key

/** useLatest calls load when key changes; an empty key calls nothing, and has no result. */
export function useLatest<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Latest<T> {
  const [state, setState] = useState<{ key: string; data?: T; failure?: Failure }>({ key: "" });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    if (!key) return undefined;
    const running = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const data = await load(running.signal);
        if (!running.signal.aborted) setState({ key, data });
      } catch (e) {
        if (running.signal.aborted) return;
        const failure = toFailure(e);
        setState((s) => ({ key, data: s.data, failure }));
        if (failure.isTransient) setTimeout(() => { if (!running.signal.aborted) setAttempt((n) => n + 1); }, 3000);
      }
    }, pause);
    return () => {
      clearTimeout(timer);
      running.abort();
    };
  }, [key, attempt]);
  return key ? { data: state.data, failure: state.failure, isOld: state.key !== key } : { isOld: false };
}
