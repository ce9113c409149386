import { Sentence } from "../../components/card";
import type { OverviewData } from ".";
import { findProblems, type Problem } from "./problems";

const maxSentences = 4;

/** Headline says whether schedules are kept, and what keeps them from it. */
export function Headline({ data }: { data: OverviewData }) {
  if (!data.queues.data.value) return <><h1>Overview</h1><Sentence> </Sentence></>;
  const problems = findProblems({
    queues: data.queues.data.value.queues, nodes: data.nodes.data.value?.nodes,
    lostNodes: data.nodes.data.value?.lostNodes, shards: data.shards.data.value?.shards,
    upcoming: data.upcoming.data.value,
  });
  return (
    <>
      <h1>{headlineOf(problems)}</h1>
      <Sentence>
        {problems.length === 0 && "Nothing is overdue, every queue with work has workers, and no target is down."}
        {problems.slice(0, maxSentences).map((p) => <span key={p.text}><a href={p.href}>{p.text}</a> </span>)}
        {problems.length > maxSentences && `And ${problems.length - maxSentences} more.`}
      </Sentence>
    </>
  );
}

function headlineOf(problems: Problem[]): string {
  const names = [...new Set(problems.map((p) => p.name))];
  if (names.length === 0) return "Schedules are kept";
  const shown = names.slice(0, 2).join(" and ");
  return `Schedules are kept, except: ${shown}${names.length > 2 ? `, and ${names.length - 2} more` : ""}`;
}
