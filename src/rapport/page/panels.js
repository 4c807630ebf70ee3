/** Every panel, in the order of the tabs. docs/extending/a-page-panel.md says how to add one. */

import { agents, insight } from "./later.js";
import { memory } from "./memory.js";
import { next } from "./next.js";
import { notes } from "./notes.js";
import { sources } from "./sources.js";
import { why } from "./why.js";

export const PANELS = [sources, why, next, memory, notes, agents, insight];
