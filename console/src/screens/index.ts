// All screens, in the order of the navigation.
import type { Screen } from "../app/screen";
import { overviewScreen } from "./overview";
import { jobsScreen } from "./jobs";

export const screens: Screen[] = [overviewScreen, jobsScreen];
