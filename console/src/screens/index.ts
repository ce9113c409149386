// All screens, in the order of the navigation.
import type { Screen } from "../app/screen";
import { jobScreen } from "./job";
import { jobsScreen } from "./jobs";
import { overviewScreen } from "./overview";
import { runScreen } from "./run";

export const screens: Screen[] = [overviewScreen, jobsScreen, jobScreen, runScreen];
