// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// What stands below the picture: the step in full, what holds now, and the rules.
import { html, svg, box } from "./svg.js";
import { RULES, details, seconds, span, list, shortToken, votes, byHand } from "./words.js";

const DETAILS_MAX = 40;

function showDetails(element, run, step) {
  const entries = details(run, step);
  const items = entries.slice(0, DETAILS_MAX).map((entry) => html("li", { class: entry.strong ? "strong" : null },
    entry.text,
    ...(entry.code ?? []).map((code) => html("code", {}, code)),
    entry.note ? html("span", { class: "note" }, entry.note) : null));
  if (entries.length > DETAILS_MAX) items.push(html("li", {}, `and ${entries.length - DETAILS_MAX} more`));
  element.replaceChildren(...items);
}

function row(...cells) {
  return html("tr", {}, ...cells.map((cell) => html("td", {}, cell)));
}

function table(heads, rows, empty, kind = null) {
  if (rows.length === 0) return html("p", { class: "quiet" }, empty);
  return html("table", { class: kind },
    html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))),
    html("tbody", {}, ...rows));
}

function meter(part) {
  return html("meter", { min: 0, max: 1, value: part.toFixed(3) });
}

function holdsTable(run, ns) {
  const rows = run.holdsAt(ns).map((hold) => {
    const left = hold.deadline(ns) - ns;
    const text = left === Infinity ? "no deadline" : left < 0 ? "past its deadline" : span(left);
    return row(hold.claim.name, hold.client, byHand(hold) ? "none" : shortToken(hold.token), html("span", {}, meter(hold.left(ns)), " " + text));
  });
  return table(["Lock", "Holder", "Token", "Valid for"], rows, "No client holds a lock.");
}

/* Engines whose claims have a lease of their own. */
const LEASED = ["redis", "redlock", "sentinel", "cluster"];

/** What was taken off the lease of a grant, in nanoseconds (docs/guarantees.md). */
function deductions(hold) {
  const { lease } = hold.claim, grant = hold.deadlines.at(hold.at);
  const drift = lease / 100 + 2e6, margin = Math.min(lease / 20, 250e6);
  const valid = grant.deadline - grant.at;
  return { lease, drift, margin, valid, elapsed: Math.max(0, lease - drift - margin - valid) };
}

function validityTable(run, ns) {
  const rows = run.holdsAt(ns).filter((hold) => LEASED.includes(run.engine) && !byHand(hold) && hold.claim.lease > 0)
    .map((hold) => {
      const { lease, drift, margin, valid, elapsed } = deductions(hold);
      return row(hold.claim.name, hold.client, span(lease), "− " + span(elapsed), "− " + span(drift), "− " + span(margin), "= " + span(valid));
    });
  return rows.length === 0 ? null
    : table(["Lock", "Holder", "Lease", "Elapsed", "Drift", "Margin", "Valid"], rows, "", "tight");
}

/** Redlock: how many nodes have voted for each claim. */
function votesTable(run, ns) {
  const nodes = run.lanesOf("server").length, needed = Math.floor(nodes / 2) + 1;
  const waiting = run.waits.filter((wait) => wait.at <= ns && wait.to > ns).map((wait) => wait.claim);
  const rows = [...run.holdsAt(ns).map((hold) => hold.claim), ...waiting].map((claim) => {
    const voters = [...votes(run, claim, ns)].filter(([, said]) => said === "a vote").map(([node]) => node).sort();
    const verdict = voters.length >= needed ? "a majority" : `${needed} are needed`;
    return row(claim.name, claim.client, list(voters) || "none", `${voters.length} of ${nodes}: ${verdict}`);
  });
  return run.engine !== "redlock" || rows.length === 0 ? null
    : table(["Lock", "For", "Votes of", "Together"], rows, "");
}

function waitsTable(run, ns) {
  const rows = run.waits.filter((wait) => wait.at <= ns && wait.to > ns)
    .map((wait) => row(wait.claim.name, wait.claim.client, span(ns - wait.at)));
  return table(["Lock", "Waiter", "For"], rows, "No client waits.");
}

function keysTable(run, ns) {
  const rows = [];
  for (const lane of run.lanes.values()) {
    for (const [name, track] of lane.stored) {
      const state = track.at(ns);
      if (state === null || (state.holder === null && state.fence === "0")) continue;
      const alive = state.holder !== null && state.until > ns;
      rows.push(row(lane.id, name, alive ? run.ownerName(state.holder) ?? state.holder.slice(0, 12) : "free",
        alive && state.until !== Infinity ? span(state.until - ns) : "",
        state.fence === "0" ? "" : shortToken(state.fence)));
    }
  }
  const heads = run.engine === "sessions" ? ["Server", "Lock", "Session of", "", ""] : ["Server", "Lock", "Key of", "Ends in", "Fence"];
  return rows.length === 0 ? null : table(heads, rows, "");
}

function showNow(element, run, ns) {
  const tables = [holdsTable(run, ns), validityTable(run, ns), waitsTable(run, ns), votesTable(run, ns), keysTable(run, ns)];
  element.replaceChildren(...tables.filter((one) => one !== null));
}

function showRules(element, run, jump) {
  const rules = Object.entries(RULES).filter(([name]) => name !== "server");
  const state = (name) => run.verdict.rule === name ? "broken" : run.promised.has(name) ? "holds" : "open";
  const marks = { broken: "✕ broken", holds: "✓", open: "–" };
  const items = (wanted) => rules.filter(([name]) => state(name) === wanted)
    .map(([, text]) => html("li", { class: wanted }, html("span", { class: "mark" }, marks[wanted]), " " + text));
  const open = items("open");
  if (open.length > 0) open.unshift(html("li", { class: "head" }, "Not promised in this run, or not checked:"));
  element.replaceChildren(html("ul", { class: "rules" }, ...items("broken"), ...items("holds"), ...open));
  if (run.verdict.events !== undefined) element.prepend(witnesses(run, jump));
}

/** The few events that show how a rule was broken. */
function witnesses(run, jump) {
  const buttons = run.verdict.events.map((number) => {
    const { at, event } = run.told.get(number);
    const button = html("button", { type: "button" }, `${seconds(at)}: ${event.client ?? "an operator"} ${event.kind}`);
    button.addEventListener("click", () => jump(run.stepOf(number)));
    return html("li", {}, button);
  });
  return html("ol", { class: "witnesses" }, ...buttons);
}

function showLegend(element) {
  const picture = (kind, more) => svg("svg", { width: 44, height: 18, "aria-hidden": "true" }, ...more.map((one) => one(kind)));
  const entries = [
    ["hold c0", [(kind) => box(kind, 1, 2, 42, 14, { rx: 3 })], "A client holds a lock: its name and token"],
    ["promise c0", [(kind) => box(kind, 1, 2, 30, 14, { rx: 3 })], "What is left of the lease: it shrinks, and grows when it is renewed"],
    ["past c0", [(kind) => box(kind, 1, 2, 42, 14, { rx: 3 })], "Its lease is over, and it has not looked yet"],
    ["wait c0", [(kind) => svg("line", { class: kind, x1: 1, y1: 9, x2: 43, y2: 9 })], "A client waits"],
    ["message request c0", [(kind) => svg("line", { class: kind, x1: 1, y1: 3, x2: 40, y2: 15 })], "A request"],
    ["message answer c0", [(kind) => svg("line", { class: kind, x1: 1, y1: 15, x2: 40, y2: 3 })], "An answer"],
    ["write c0", [(kind) => svg("line", { class: kind, x1: 1, y1: 3, x2: 40, y2: 15 })], "A write to the store behind the guard"],
    ["stored c0", [(kind) => box(kind, 1, 7, 42, 5, { rx: 2 })], "A server has the key of this client, or its session has the lock there"],
  ];
  element.replaceChildren(...entries.map(([kind, more, text]) => html("p", {}, picture(kind, more), " " + text)),
    html("p", {}, "✕ lost or refused; a lightning: a fault; † a process has died. Quiet times are shortened; their length is above them."),
    html("p", {}, "Keys: ← → one step, space plays, Page Up and Page Down ten steps, Home and End."));
}

/** The whole run in a strip: what was held, faults, and what was broken. */
function showOverview(element, run, colour) {
  const place = (ns) => (run.x(ns) / run.x(run.end)) * 1000;
  const height = (hold) => run.names.length > 1 ? run.names.indexOf(hold.claim.name) : run.lanes.get(hold.client).row;
  const holds = run.holds.map((hold) => {
    const from = place(hold.at), to = place(Math.min(hold.to, hold.deadline(hold.to), run.end));
    return box("hold " + colour(hold.client), from, 4 + 5 * (height(hold) % 3), Math.max(0.8, to - from), 4);
  });
  const marks = run.marks.filter((mark) => mark.kind !== "dead")
    .map((mark) => box("mark " + mark.kind, place(mark.at) - 1, mark.kind === "fault" ? 19 : 0, 2, mark.kind === "fault" ? 7 : 19));
  const broken = (run.verdict.events ?? []).map((number) => box("mark broken", place(run.told.get(number).at) - 1.5, 0, 3, 26));
  element.replaceChildren(svg("svg", { viewBox: "0 0 1000 26", preserveAspectRatio: "none", width: "100%", height: 26 }, ...holds, ...marks, ...broken));
}

export { showDetails, showNow, showRules, showLegend, showOverview };
