import "./style/tokens.css";
import "./style/base.css";
import "./style/components.css";
import { render } from "preact";
import { apiBase, whenSignedOut } from "./api/client";
import { toFailure } from "./api/errors";
import { refreshExpiredSessions } from "./api/session";
import { isSignedOut, learnCaller, serverConfig, type ServerConfig } from "./app/access";
import { Shell, StartFailed } from "./app/shell";

const root = document.getElementById("console")!;

async function start(): Promise<void> {
  whenSignedOut(() => {
    isSignedOut.value = true;
  });
  try {
    const response = await fetch(`${apiBase}console.json`, { credentials: "same-origin" });
    if (response.ok) serverConfig.value = (await response.json()) as ServerConfig;
  } catch { /* the next call says what is wrong */ }
  if (serverConfig.value.signIn?.provider) refreshExpiredSessions();
  render(<Shell />, root);
  try {
    await learnCaller();
  } catch (e) {
    const failure = toFailure(e);
    if (!failure.isTransient && failure.status !== 401) render(<StartFailed error={failure} />, root);
    else if (failure.isTransient) setTimeout(() => void learnCaller().catch(() => {}), 5000);
  }
}

void start();
