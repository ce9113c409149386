// What is shown to a caller that the nodes do not know.
import { serverConfig } from "./access";

/** SignIn asks for a credential. */
export function SignIn() {
  return (
    <section class="card narrow">
      <h1>Sign in</h1>
      {serverConfig.value.signIn
        ? <p>This cluster asks for a credential.</p>
        : <p>This gateway has no credential for the console. Run <code>fermata login</code>, then
          {" "}<code>fermata console</code>, and open the link that it prints.</p>}
    </section>
  );
}
