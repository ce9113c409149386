// All screens, in the order of the navigation.
import type { Screen } from "../app/screen";
import { applyScreen } from "./apply";
import { auditScreen } from "./audit";
import { clusterScreen } from "./cluster";
import { deadLettersScreen } from "./dead_letters";
import { createScreen, editScreen } from "./edit";
import { eventsScreen } from "./events";
import { jobScreen } from "./job";
import { jobsScreen } from "./jobs";
import { loadScreen } from "./load";
import { overviewScreen } from "./overview";
import { queueScreen, queuesScreen } from "./queues";
import { runScreen } from "./run";
import { runsScreen } from "./runs";
import { targetsScreen } from "./targets";
import { upcomingScreen } from "./upcoming";
import { webhooksScreen } from "./webhooks";

export const screens: Screen[] = [
  overviewScreen, jobsScreen, runsScreen, upcomingScreen, loadScreen, queuesScreen, targetsScreen, deadLettersScreen, clusterScreen, eventsScreen, webhooksScreen, auditScreen,
  jobScreen, runScreen, queueScreen,
  createScreen, editScreen, applyScreen,
];
