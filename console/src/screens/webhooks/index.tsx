// Webhooks: what is not delivered, and why.
import { ActionButton } from "../../actions/button";
import { redeliverEvents } from "../../actions/webhooks";
import { call } from "../../api/client";
import type { UndeliveredEvent, Webhook } from "../../api/generated";
import type { Screen } from "../../app/screen";
import { Card } from "../../components/card";
import { ErrorText, JobLink } from "../../components/job_link";
import { Empty, Loaded } from "../../components/messages";
import { State, type StateWord } from "../../components/state";
import { Table, type Column } from "../../components/table";
import { Ago } from "../../components/time";
import { formatSpan, parseDuration } from "../../format/duration";
import { useQuery } from "../../live/query";

function stateOfWebhook(w: Webhook): StateWord {
  if (w.failingShards) return { tone: "retry", text: "fails, tries again" };
  if (w.undelivered) return { tone: "bad", text: "has given up events" };
  return w.behindShards ? { tone: "wait", text: "delivers" } : { tone: "ok", text: "up to date" };
}

const webhookColumns: Column<Webhook>[] = [
  { title: "Webhook", cell: (w) => <bdi class="id">{w.name}</bdi> },
  { title: "State", cell: (w) => <State {...stateOfWebhook(w)} /> },
  { title: "Oldest waiting", numeric: true, cell: (w) => (parseDuration(w.lag) > 0 ? formatSpan(w.lag) : "") },
  { title: "Given up", numeric: true, cell: (w) => w.undelivered ?? 0 },
  { title: "Endpoint", minor: 1, cell: (w) => <bdi>{w.url}</bdi> },
  { title: "Action", cell: (w) => <ActionButton action={redeliverEvents} subject={w} /> },
];

const eventColumns: Column<UndeliveredEvent>[] = [
  { title: "Event", cell: (u) => <span class="id">{u.event?.kind}</span> },
  { title: "Job", cell: (u) => (u.event?.job ? <JobLink name={u.event.job} /> : null) },
  { title: "Webhook", cell: (u) => <bdi>{u.webhook}</bdi> },
  { title: "Given up", cell: (u) => <Ago at={u.time} /> },
  { title: "Tries", numeric: true, minor: 1, cell: (u) => u.attempts ?? 0 },
  { title: "Result", minor: 1, cell: (u) => <ErrorText text={u.reason} /> },
];

function Webhooks() {
  const list = useQuery("webhooks", (signal) => call("ListWebhooks", {}, undefined, { signal }));
  const isOff = list.error.value?.status === 409;
  return (
    <>
      <h1>Webhooks</h1>
      {isOff
        ? <Empty title="The nodes have no webhooks"><p>Events can be sent to other systems: start the nodes with <code>--webhooks-file</code>.</p></Empty>
        : <Loaded query={list} what="The webhooks">
          {(d) => (
            <div class="stack">
              {(d.webhooks ?? []).length === 0 ? <Empty title="There is no webhook" />
                : <Table caption="Webhooks" columns={webhookColumns} rows={d.webhooks!} keyOf={(w) => w.name ?? ""} />}
              <Undelivered />
            </div>
          )}
        </Loaded>}
    </>
  );
}

function Undelivered() {
  const list = useQuery("undelivered", (signal) => call("ListUndeliveredEvents", { pageSize: 100 }, undefined, { signal }), 5000);
  return (
    <Card title="Events that were given up" note="the newest first">
      <Loaded query={list} what="The undelivered events">
        {(d) => (d.events ?? []).length === 0 ? <p class="soft">All events were delivered, or are still tried.</p>
          : <Table caption="Undelivered events" columns={eventColumns} rows={d.events!} keyOf={(u) => `${u.webhook}/${u.event?.id}`} />}
      </Loaded>
    </Card>
  );
}

export const webhooksScreen: Screen = { path: "webhooks", title: () => "Webhooks", nav: "Webhooks", key: "w", view: Webhooks };
