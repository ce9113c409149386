// Signing in: by a token, or at an issuer. What was being edited stays on the page meanwhile.
import { useEffect, useId, useState } from "preact/hooks";
import { toFailure, type Failure } from "../api/errors";
import { beginSession, endSession, signInAddress } from "../api/session";
import { dropChanges } from "../bulk/changes";
import { Failed } from "../components/messages";
import { dropCache, refreshAll } from "../live/query";
import { caller, isSignedOut, learnCaller, serverConfig } from "./access";
import { dropDrafts } from "./drafts";
import { notify } from "./notices";
import { dropHandedPlace, handReturnPlaceOver, keepReturnPlace } from "./return_place";

/**
 * SignIn asks for a credential. A sign-in at an issuer leads back to the place that is shown; during an edit, it opens
 * in another tab, which then shows that place. A sign-in in another tab counts here too.
 */
export function SignIn({ keepsPage }: { keepsPage?: boolean }) {
  const ways = serverConfig.value.signIn;
  useEffect(() => {
    const look = () => { if (!document.hidden) void resume().catch(() => {}); };
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);
  if (!ways) {
    return <p>This console has no credential that the nodes accept. Run <code>fermata login</code>, then
      {" "}<code>fermata console</code>, and open the link that it prints.</p>;
  }
  return (
    <>
      {ways.provider && (
        <p><a class="button main" href={signInAddress} target={keepsPage ? "_blank" : undefined} rel="noopener"
          onClick={keepsPage ? handReturnPlaceOver : keepReturnPlace}>Sign in at {ways.provider}</a>
          {keepsPage && <span class="soft"> It opens in another tab. Come back here afterwards: nothing on this page is lost.</span>}</p>
      )}
      {ways.token && <TokenForm isSecond={!!ways.provider} />}
    </>
  );
}

/** resume goes on with a new credential. It throws a Failure. */
async function resume(): Promise<void> {
  const before = caller.value?.identity;
  await learnCaller();
  if (before !== undefined && before !== caller.value?.identity) dropCache();
  await refreshAll();
}

function TokenForm({ isSecond }: { isSecond: boolean }) {
  const id = useId();
  const [failure, setFailure] = useState<Failure>();
  const submit = async (e: Event) => {
    e.preventDefault();
    const input = (e.currentTarget as HTMLFormElement).elements.namedItem("token") as HTMLInputElement;
    setFailure(undefined);
    try {
      await beginSession(input.value);
      input.value = "";
      await resume();
    } catch (error) {
      setFailure(toFailure(error));
      input.select(); // the next one that is pasted replaces it
    }
  };
  return (
    <form onSubmit={(e) => void submit(e)}>
      <div class="field">
        <label for={id}>{isSecond ? "Or paste a token" : "Token"}</label>
        <input id={id} name="token" type="password" autocomplete="off" spellcheck={false} required aria-describedby={`${id}-help`} />
        <p id={`${id}-help`} class="soft">A token that the nodes accept. The gateway keeps it in a cookie of this browser, which no script can read.</p>
      </div>
      {failure && <Failed failure={failure} />}
      <button type="submit" class="main">Sign in</button>
    </form>
  );
}

/** signOut ends the session. */
export async function signOut(): Promise<void> {
  try {
    await endSession();
    caller.value = undefined;
    isSignedOut.value = true;
    dropCache();
    dropDrafts();
    dropChanges();
    dropHandedPlace();
  } catch (e) {
    notify(toFailure(e).message);
  }
}
