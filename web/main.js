// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// The page of `stile sim --story`: one run.
import { Run } from "./run.js";
import { Player } from "./player.js";
import { verdictText } from "./words.js";

const find = (id) => document.getElementById(id);

function showTitle(run) {
  const title = `${run.engine}, seed ${run.seed}`;
  document.title = `stile sim: ${title}`;
  find("title").textContent = title;
  find("verdict").className = "verdict " + (run.verdict.holds ? "holds" : "broken");
  find("verdict").textContent = verdictText(run);
  find("footer").textContent = `A run of the real library in virtual time, by stile sim --engine ${run.engine} --seed ${run.seed}. ` +
    `Clients open ${run.url}. Trace ${run.trace}.`;
}

const run = new Run(JSON.parse(find("run").textContent));
showTitle(run);
const player = new Player(find);
window.stilePage = player; /* for the browser's console */
const shown = run.verdict.events ?? [];
player.load(run, shown.length > 0 ? run.told.get(shown[shown.length - 1]).at : 0);
