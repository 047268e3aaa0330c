// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// The page of `stile play`: stories that the reader can break. What the reader does is a line of the
// story, which then runs again from its beginning; up to that line, it is the same run.
import { Run } from "./run.js";
import { Machine } from "./machine.js";
import { Player } from "./player.js";
import { closes, count, list, verdictText, what } from "./words.js";
import { html } from "./svg.js";

const find = (id) => document.getElementById(id);

const CLIENT_ACTIONS = [
  ["pauses", "is paused"], ["resumes", "wakes up"], ["dies", "is killed"], ["starts", "starts again"],
  ["asks x ttl 3", "asks for x"], ["releases x", "releases x"], ["checks x", "checks that it holds x"],
  ["writes x", "writes to the store"],
];
const SQL_ACTIONS = [
  ["pauses", "is paused"], ["resumes", "wakes up"], ["dies", "is killed"], ["starts", "starts again"],
  ["locks x", "runs pg_advisory_lock()"], ["tries x", "runs pg_try_advisory_lock()"], ["unlocks x", "runs pg_advisory_unlock()"],
  ["checks x", "uses its connection (SELECT 1)"], ["writes x", "writes to the store"],
];
const BY_HAND_ACTIONS = [["sets x ttl 3", "tries SET lock:x NX PX 3000"], ["deletes x", "tries DEL lock:x"]];
const SERVER_ACTIONS = [
  ["stops", "stops answering"], ["continues", "answers again"], ["crashes", "crashes, and keeps its data"],
  ["forgets", "crashes, and loses its data"], ["restarts", "starts again"], ["flushes", "is emptied (FLUSHALL)"],
  ["jumps 20", "clock jumps 20 s ahead"], ["jumps -20", "clock jumps 20 s back"],
];
const MEMBER_ACTIONS = [
  ["stops", "stops answering"], ["continues", "answers again"], ["crashes", "crashes, and keeps its data"],
  ["restarts", "starts again"], ["isolates", "is cut off from the other members"], ["rejoins", "reaches them again"],
];
const DATABASE_ACTIONS = [
  ["stops", "stops answering"], ["continues", "answers again"], ["crashes", "crashes, and all sessions end"],
  ["restarts", "starts again"],
];
const PATH_ACTIONS = [
  ["cut", "lets nothing pass"], ["mute", "loses requests"], ["deaf", "loses answers"], ["slow", "is slow"],
  ["open", "works again"],
];
const MESSAGE_ACTIONS = [
  ["held", "is held up"], ["freed", "continues"], ["late 0.5", "takes half a second longer"],
  ["lost", "is lost, and its connection breaks"],
];
const LEASE_S = 3; /* of a claim that names none */

/** A story's settings and lines. */
class Story {
  constructor(text) {
    this.text = text;
  }

  setting(name) {
    return new RegExp(`^${name} (.*)$`, "m").exec(this.text)?.[1].trim() ?? null;
  }

  /** The same story with another value of a setting, or without it. */
  with(name, value) {
    const lines = this.text.split("\n").filter((line) => !line.startsWith(name + " "));
    if (value !== null) lines.splice(lines.findIndex((line) => line.startsWith("at ")), 0, `${name} ${value}`);
    return new Story(lines.join("\n"));
  }

  /** The time of its first caption: before that, clients connect. */
  get start() {
    return Number(/^at (\S+) say /m.exec(this.text)?.[1] ?? 0) * 1e9;
  }

  /** The lease of the first claim, in seconds. */
  get lease() {
    return Number(/^at .* asks .* ttl (\S+)/m.exec(this.text)?.[1] ?? LEASE_S);
  }

  withLease(seconds) {
    const lines = this.text.split("\n").map((line) => !/^at \S+ \S+ asks /.test(line) ? line
      : line.includes(" ttl ") ? line.replace(/ ttl \S+/, ` ttl ${seconds}`) : `${line} ttl ${seconds}`);
    return new Story(lines.join("\n"));
  }

  /** Some of its clients lock without the library. */
  get byHand() {
    return /^at \S+ \S+ sets /m.test(this.text);
  }

  /** Its clients lock with SQL: there are no leases. */
  get sessions() {
    return this.setting("engine") === "sessions";
  }

  get guarded() {
    return this.setting("guard") !== "off";
  }

  get fenced() {
    return this.setting("option") !== "fence=off";
  }
}

class Play {
  constructor(machine) {
    this.machine = machine;
    this.player = new Player(find, () => this.offerMessages());
    this.stories = JSON.parse(find("stories").textContent).map((text) => new Story(text));
    this.done = []; // what the reader has added
    for (const [i, story] of this.stories.entries())
      find("story").append(html("option", { value: i }, story.setting("title")));
    this.listen();
    this.choose(this.stories[Math.max(0, this.stories.findIndex((one) => "#" + slug(one) === location.hash))]);
  }

  listen() {
    const on = (id, kind, fn) => find(id).addEventListener(kind, fn);
    on("story", "change", (event) => this.choose(this.stories[Number(event.target.value)]));
    on("guard", "change", (event) => this.change(this.story.with("guard", event.target.checked ? null : "off")));
    on("fence", "change", (event) => this.change(this.story.with("option", event.target.checked ? null : "fence=off")));
    for (const name of ["raise", "renewal"])
      on(name, "change", (event) => this.change(this.story.with(name, event.target.checked ? null : "off")));
    on("lease", "change", (event) => this.change(this.story.withLease(event.target.value)));
    on("subject", "change", () => this.offerActions());
    on("do", "click", () => this.act());
    on("undo", "click", () => this.takeBack());
    on("again", "click", () => this.change(new Story(find("text").value)));
    on("run-seed", "click", () => this.runSeed());
  }

  choose(story) {
    this.done = [];
    this.change(story, story.start);
    find("story").value = this.stories.indexOf(story);
    this.offerSubjects();
  }

  /** Runs another version of the story, and stays at the time shown. */
  change(story, ns = this.now()) {
    this.attempt(() => {
      const run = new Run(this.machine.story(story.text));
      run.changed = Math.min(...this.done.map((line) => Number(line.split(" ")[1]) * 1e9), Infinity);
      this.story = story;
      this.show(run, ns);
      this.compare();
    });
  }

  attempt(fn) {
    find("error").textContent = "";
    try {
      fn();
    } catch (error) {
      find("error").textContent = error.message;
    }
  }

  now() {
    const run = this.player.run;
    return run === null ? 0 : run.steps[this.player.step].at;
  }

  show(run, ns) {
    this.player.load(run, ns);
    find("title").textContent = this.story.setting("title") ?? "A story";
    document.title = "stile play: " + find("title").textContent;
    find("about").textContent = this.story.setting("about") ?? "";
    find("text").value = this.story.text;
    this.showControls();
    find("undo").disabled = this.done.length === 0;
    this.showVerdict(run);
    find("footer").textContent = (this.story.sessions
      ? "Plain clients and a model of PostgreSQL's session locks in virtual time, in this page: stile's engine for PostgreSQL is not part of it. "
      : "The real library and the real engines in virtual time, in this page. ") + `Clients open ${run.url}. Trace ${run.trace}.`;
  }

  showControls() {
    const { story } = this;
    find("guard").checked = story.guarded;
    find("fence").checked = story.fenced;
    for (const name of ["raise", "renewal"]) find(name).checked = story.setting(name) !== "off";
    find("fence-label").hidden = story.setting("engine") !== "redlock";
    find("renewal-label").hidden = !["redis", "redlock"].includes(story.setting("engine")); /* sessions are always renewed */
    find("lease-label").hidden = story.sessions;
    find("variants").hidden = story.byHand;
    find("raise").disabled = !story.guarded;
    if (![...find("lease").options].some((option) => Number(option.value) === story.lease))
      find("lease").append(html("option", { value: story.lease }, `${story.lease} s`));
    find("lease").value = story.lease;
  }

  showVerdict(run) {
    const { verdict } = run;
    const lost = verdict.updates_lost;
    find("verdict").className = "verdict " + (!verdict.holds || lost > 0 ? "broken" : run.promised.has("overlap") ? "holds" : "");
    find("verdict").textContent = (verdict.holds && lost > 0
      ? `${run.promised.has("overlap") ? "The lock has kept its promises, and yet" : "Exclusion was not promised here, and"} ` +
        `${count(lost, "update is", "updates are")} lost: ` +
        (this.story.guarded && !this.story.byHand ? "a write came between a read and a raise of the guard." : "the store does not check tokens.")
      : verdictText(run)) + this.waitersText(run);
  }

  waitersText(run) {
    const waiters = run.waits.filter((wait) => wait.to === Infinity).map((wait) => wait.claim.client);
    return waiters.length === 0 ? "" : ` At the end, ${list([...new Set(waiters)])} still ${waiters.length === 1 ? "waits" : "wait"}.`;
  }

  /* ---- side by side ---- */

  /** The same story with and without protection. */
  compare() {
    find("outcomes").replaceChildren();
    if (this.story.byHand) return; /* there are no tokens that a store could check */
    const redlock = this.story.setting("engine") === "redlock";
    const variants = [["the store takes every write", this.story.with("guard", "off")],
      ["the store checks tokens", this.story.with("guard", null)]];
    if (redlock) {
      variants.unshift(["plain Redlock: no tokens to check", this.story.with("option", "fence=off").with("guard", "off")]);
      variants[1][1] = variants[1][1].with("option", null);
      variants[2][1] = variants[2][1].with("option", null);
    }
    const rows = variants.map(([name, story]) => this.outcome(name, story));
    find("outcomes").replaceChildren(html("table", {},
      html("caption", {}, "The same story, side by side"),
      html("thead", {}, html("tr", {}, ...["", "Grants", "Losses reported", "Writes refused", "Updates lost"].map((head) => html("th", { scope: "col" }, head)))),
      html("tbody", {}, ...rows)));
  }

  outcome(name, story) {
    const { verdict } = this.machine.story(story.text);
    const cells = [verdict.grants, verdict.losses, verdict.refused, verdict.updates_lost];
    return html("tr", {}, html("th", { scope: "row" }, name),
      ...cells.map((cell, i) => html("td", { class: i === 3 && cell > 0 ? "bad" : null }, String(cell))));
  }

  /* ---- what the reader does ---- */

  offerSubjects() {
    const lanes = [...this.player.run.lanes.values()];
    const clients = lanes.filter((lane) => lane.kind === "client").map((lane) => lane.id);
    const servers = lanes.filter((lane) => lane.kind === "server").map((lane) => lane.id);
    const paths = clients.flatMap((client) => servers.map((server) => `${client} ${server}`));
    const group = (title, names, kind) => html("optgroup", { label: title },
      ...names.map((name) => html("option", { "value": name, "data-kind": kind }, name.replace(" ", " ↔ "))));
    this.messages = html("optgroup", { label: "Messages under way" });
    find("subject").replaceChildren(group("Clients", clients, "client"), group("Servers", servers, "server"),
      group("The way between", paths, "path"), this.messages);
    this.offerMessages();
    this.offerActions();
  }

  /** The messages under way at the step shown; the one that was chosen stays chosen. */
  offerMessages() {
    if (this.messages === undefined) return;
    const chosen = find("subject").value;
    const options = this.player.run.underWay(this.now()).filter((message) => !closes(message)).map((message) =>
      html("option", { "value": `message ${message.piece}`, "data-kind": "message" },
        `${message.from} → ${message.to}: ${what(message)}`));
    this.messages.replaceChildren(...options);
    find("subject").value = chosen;
    if (find("subject").value === "") {
      find("subject").selectedIndex = 0;
      this.offerActions();
    }
  }

  offerActions() {
    const kind = find("subject").selectedOptions[0]?.dataset.kind ?? "client";
    const actions = {
      client: this.clientActions(), server: this.serverActions(), path: PATH_ACTIONS, message: MESSAGE_ACTIONS,
    }[kind];
    find("action").replaceChildren(...actions.map(([value, text]) => html("option", { value }, text)));
  }

  clientActions() {
    if (this.story.sessions) return [...SQL_ACTIONS, ...this.sessionsToEnd()];
    return this.story.byHand ? [...CLIENT_ACTIONS, ...BY_HAND_ACTIONS] : CLIENT_ACTIONS;
  }

  sessionsToEnd() {
    return this.story.setting("clients").split(" ").filter((name) => name !== find("subject").value)
      .map((name) => [`ends ${name}`, `ends the session of ${name} (pg_terminate_backend)`]);
  }

  serverActions() {
    if (this.story.sessions) return DATABASE_ACTIONS;
    return ["redis", "redlock"].includes(this.story.setting("engine")) ? SERVER_ACTIONS : MEMBER_ACTIONS;
  }

  act() {
    const at = (this.now() / 1e9 + 1e-6).toFixed(6);
    const line = `at ${at} ${find("subject").value} ${find("action").value}`;
    const text = this.story.text.trimEnd();
    this.done.push(line);
    this.change(new Story(text + "\n" + line + "\n"));
    this.player.go(this.player.run.stepAt(Number(at) * 1e9 + 1));
  }

  takeBack() {
    const line = this.done.pop();
    if (line === undefined) return;
    const lines = this.story.text.split("\n"), at = lines.lastIndexOf(line);
    if (at >= 0) lines.splice(at, 1); /* else it was edited away */
    this.change(new Story(lines.join("\n")));
  }

  runSeed() {
    const engine = find("seed-engine").value, seed = find("seed").value.trim();
    this.attempt(() => {
      if (!/^\d{1,19}$/.test(seed)) throw new Error("a seed is a whole number");
      const run = new Run(this.machine.seed(engine, seed));
      this.player.load(run);
      find("title").textContent = `${engine}, seed ${seed}`;
      find("about").textContent = "A seed of the simulator: it decides what clients do and what goes wrong.";
      find("outcomes").replaceChildren();
      this.showVerdict(run);
      find("footer").textContent = `stile sim --engine ${engine} --seed ${seed}. Trace ${run.trace}.`;
    });
  }
}

function slug(story) {
  return story.setting("title").toLowerCase().replace(/[^a-z0-9]+/g, "-");
}

const machine = await Machine.start(find("wasm").textContent.trim());
window.stilePlay = new Play(machine); /* for the browser's console, too */
