// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// The picture: a lane for each client, server and store, from left to right. What has happened is
// left of the line "now"; to its right is only what leases promise.
import { svg, line, box, label } from "./svg.js";
import { span, seconds, shortToken, brief, byHand, closes, what } from "./words.js";

const COLOURS = 8;
const HEIGHTS = { client: 38, server: 34, store: 40 };
const LEVEL = 17;
const BAR_TOP = 15; /* above it is room for the name of a fault or state */
const LETTER = 7; /* of a label, in pixels, about */
const TOP = 26;
const NOW_AT = 0.74; /* of the width */

/* Faults that are shown as a state of their lane, by its name. */
const SHOWN_AS_STATES = ["a client is paused", "a server is stopped", "a member is stopped"];

function widthOf(text) {
  return text.length * LETTER;
}

/** A lightning: fonts without the sign are common. */
function bolt(x, y) {
  return svg("path", { class: "bolt", d: `M${x + 1} ${y - 7} l-6 8 h4 l-2 6 l6 -8 h-4 z` });
}

class Diagram {
  constructor(run, element) {
    this.run = run;
    this.element = element;
    this.root = svg("svg", { role: "img" });
    element.append(this.root);
    this.colours = new Map();
    for (const lane of run.lanesOf("client")) this.colours.set(lane.id, this.colours.size % COLOURS);
    this.measure();
  }

  /** Once, and whenever the window has another size. */
  measure() {
    this.width = Math.max(280, this.element.clientWidth);
    this.gutter = this.width < 560 ? 76 : 148;
    this.tops = [];
    let y = TOP, before = null;
    this.run.tiers.forEach((kind, row) => {
      if (before !== null && before !== kind) y += 14;
      before = kind;
      this.tops[row] = y;
      y += this.heightOf(kind, row);
    });
    this.height = y + 6;
    this.root.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.root.setAttribute("height", this.height);
    this.root.setAttribute("width", this.width);
  }

  heightOf(kind, row) {
    if (kind !== "client") return HEIGHTS[kind];
    let levels = 1;
    for (const lane of this.run.lanes.values()) {
      if (lane.row === row) levels = Math.max(levels, lane.levels ?? 1);
    }
    return HEIGHTS.client + (levels - 1) * LEVEL;
  }

  middle(id) {
    const lane = this.run.lanes.get(id);
    const kind = this.run.tiers[lane.row];
    return this.tops[lane.row] + (kind === "client" ? BAR_TOP + 7 : HEIGHTS[kind] / 2);
  }

  colour(client) {
    return `c${this.colours.get(client) ?? 0}`;
  }

  /** Draws the moment at this place; ns is its time. */
  draw(x, ns) {
    const plot = this.width - this.gutter;
    this.left = x - plot * NOW_AT;
    this.right = x + plot * (1 - NOW_AT);
    this.now = x;
    this.ns = ns;
    this.from = this.run.time(Math.max(0, this.left - 40));
    this.taken = [];
    const faults = this.faultNames(); /* first, so that other labels make room for them */
    const inside = svg("g", { "clip-path": "url(#plot)" },
      ...this.lanes(), ...this.states(), ...this.stored(), ...this.waits(), ...this.holds(), ...this.messages(),
      ...this.writes(), ...this.marks(), ...faults);
    this.root.replaceChildren(
      svg("defs", {},
        svg("clipPath", { id: "plot" }, box("", this.gutter, 0, plot, this.height)),
        svg("pattern", { id: "stripes", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          box("stripe", 0, 0, 2.5, 6))),
      ...this.ruler(), ...this.nowLine(), inside, ...this.labels());
    this.root.setAttribute("aria-label", `Time ${seconds(ns)}. ${this.spoken()}`);
  }

  at(x) {
    return this.gutter + x - this.left;
  }

  place(ns) {
    return this.at(this.run.x(ns));
  }

  /** A span of time as pixels inside the picture; what follows now is not drawn. */
  piece(from, to) {
    const left = Math.max(this.gutter - 4, this.place(from));
    const right = Math.min(this.at(this.now), to === Infinity ? Infinity : this.place(to));
    return right > left ? { left, width: right - left } : null;
  }

  /** The first of these heights at which a label does not cover another one. Null: none. */
  roomFor(text, x, ...heights) {
    const width = widthOf(text);
    for (const at of heights) {
      if (this.taken.some((one) => Math.abs(one.y - at) < 11 && one.x < x + width && x < one.x + one.width)) continue;
      this.taken.push({ x, y: at, width });
      return at;
    }
    return null;
  }

  /* ---- parts ---- */

  lanes() {
    return [...this.run.lanes.values()].filter((lane) => lane.from <= this.ns).map((lane) => {
      const y = this.middle(lane.id);
      const piece = this.piece(lane.from, this.lifeEnd(lane));
      return piece && line("lane " + lane.kind, piece.left, y, piece.left + piece.width, y);
    });
  }

  /** A dead process has no line; its row is that of the next one. */
  lifeEnd(lane) {
    if (lane.kind !== "client") return Infinity;
    if (lane.id.startsWith("op")) return lane.to;
    const dead = lane.states.spans.find((one) => one.state === "dead");
    return dead === undefined ? Infinity : dead.at;
  }

  states() {
    const out = [];
    for (const lane of this.run.lanes.values()) {
      if (lane.kind === "store") continue;
      lane.states.between(this.from, this.ns, (state, from, to) => {
        const name = typeof state === "string" ? state : state.state;
        if (!["paused", "stopped", "down"].includes(name)) return;
        const piece = this.piece(from, to);
        if (piece === null) return;
        const y = this.tops[lane.row] + 2, height = HEIGHTS[lane.kind] - 4, indent = piece.left > this.gutter ? 10 : 6;
        out.push(box("state " + name, piece.left, y, piece.width, height, { rx: 3 }),
          box("hatch", piece.left, y, piece.width, height, { rx: 3, fill: "url(#stripes)" }));
        const left = Math.max(piece.left, this.gutter) + indent;
        if (piece.width > 50 && this.roomFor(name, left, y + 9) !== null) out.push(label("state-name", left, y + 9, name));
      });
    }
    return out;
  }

  /** Whose key a server has stored, as a band along its lane. */
  stored() {
    const out = [];
    for (const lane of this.run.lanes.values()) {
      [...lane.stored.values()].forEach((track, i) => {
        track.between(this.from, this.ns, (state, from, to) => {
          const owner = state.holder === null ? null : this.run.ownerName(state.holder);
          const piece = state.holder === null ? null : this.piece(from, Math.min(to, state.until));
          if (piece !== null)
            out.push(box(`stored ${owner === null ? "other" : this.colour(owner)}`, piece.left,
              this.middle(lane.id) + (i % 2 === 0 ? -9 : 4), piece.width, 5, { rx: 2 }));
        });
      });
    }
    return out;
  }

  waits() {
    return this.run.waits.filter((wait) => wait.at <= this.ns && wait.to >= this.from).map((wait) => {
      const piece = this.piece(wait.at, wait.to);
      const y = this.levelTop(wait.claim) + 7;
      return piece && line("wait " + this.colour(wait.claim.client), piece.left, y, piece.left + piece.width, y);
    });
  }

  levelTop(claim) {
    return this.tops[this.run.lanes.get(claim.client).row] + BAR_TOP + claim.level * LEVEL;
  }

  holds() {
    const out = [];
    for (const hold of this.run.holds) {
      if (hold.at > this.ns || hold.to < this.from) continue;
      const y = this.levelTop(hold.claim), tone = this.colour(hold.client);
      const end = Math.min(hold.to, this.ns), valid = Math.min(end, hold.deadline(end));
      const past = valid < end ? this.piece(valid, end) : null;
      if (past !== null) out.push(box(`past ${tone}`, past.left, y, past.width, 14, { rx: 3 }));
      const piece = this.piece(hold.at, valid === this.ns ? Infinity : valid);
      if (hold.to > this.ns) out.push(...this.promise(hold, y, tone));
      if (piece === null) continue;
      out.push(box(`hold ${tone} ${hold.end === "lost" && hold.to <= this.ns ? "lost" : ""}`, piece.left, y, piece.width, 14, { rx: 3 }));
      const name = byHand(hold) ? hold.claim.name : `${hold.claim.name} · ${shortToken(hold.token)}`;
      const left = Math.max(piece.left, this.gutter) + 5;
      if (left + widthOf(name) < piece.left + piece.width && this.roomFor(name, left, y + 11) !== null)
        out.push(label("hold-name", left, y + 11, name));
    }
    return out;
  }

  /** From now to the deadline: what is left of the lease, which shrinks. */
  promise(hold, y, tone) {
    const deadline = hold.deadline(this.ns);
    const width = deadline === Infinity ? this.right - this.now
      : Math.max(0, (this.right - this.now - 6) * hold.left(this.ns));
    const x = this.at(this.now);
    const over = deadline < this.ns, short = this.gutter < 100;
    const text = deadline === Infinity ? (short ? "no end" : "no deadline")
      : over ? (short ? "too late" : "past its deadline") : span(deadline - this.ns) + " left";
    this.roomFor(text, x + 5, y + 11);
    return [box(`promise ${tone}`, x, y, width, 14, { rx: 3 }), label(over ? "left over" : "left", x + 5, y + 11, text)];
  }

  messages() {
    const out = [];
    const names = [];
    for (const message of this.run.sent) {
      if (message.at > this.ns) break;
      const end = Math.min(message.came, message.lost);
      if (end < this.from || (closes(message) && message.lost <= this.ns)) continue; /* nobody misses it */
      out.push(...this.message(message, end, names));
    }
    return [...out, ...names];
  }

  message(message, end, names) {
    const y1 = this.middle(message.from), y2 = this.middle(message.to);
    const x1 = this.place(message.at);
    const under = end > this.ns;
    const late = message.late <= this.ns;
    const x = under ? Math.max(x1, this.at(this.now)) : this.place(end);
    const y = y1 + (y2 - y1) * (under ? this.part(message, end) : 1);
    const kind = [message.to_server ? "request" : "answer", this.colour(message.to_server ? message.from : message.to),
      late ? "late" : "", message.lost <= this.ns ? "gone" : "", under ? "under-way" : ""].join(" ");
    const out = [line("message " + kind, x1, y1, x, y)];
    if (under) {
      out.push(svg("circle", { class: "dot " + kind, cx: x, cy: y, r: 4.5 }));
      names.push(...this.flight(message, x, y));
    } else if (message.lost <= this.ns) {
      out.push(label("cross", x - 5, y + (y1 < y2 ? -6 : 14), "✕"));
    } else {
      out.push(svg("circle", { class: "tip " + kind, cx: x, cy: y, r: 2.2 }));
    }
    return out;
  }

  /** The name of a message under way, on the side where it fits. */
  flight(message, x, y) {
    const text = closes(message) ? "closes" : message.fatal ? "FATAL" : message.to_server ? what(message) : brief(this.run, message);
    const left = x + 8 + widthOf(text) > this.width ? Math.max(this.gutter, x - 8 - widthOf(text)) : x + 8;
    const at = this.roomFor(text, left, y + 4, y + 17, y + 30);
    return at === null ? [] : [label("flight", left, at, text)];
  }

  /** How far a message has come; one that is held up waits half way. */
  part(message, end) {
    if (message.late <= this.ns) return 0.5;
    const last = end === Infinity ? message.at + 1e6 : Math.min(end, message.late);
    const from = this.run.x(message.at), to = this.run.x(last);
    const part = to === from ? 1 : (this.now - from) / (to - from);
    return Math.min(1, part) * (message.late < Infinity ? 0.5 : 1);
  }

  writes() {
    const out = [];
    for (const write of this.run.writes) {
      if (write.sent > this.ns || write.at < this.from) continue;
      const y1 = this.middle(write.client), y2 = this.middle(write.name);
      const came = write.at <= this.ns;
      const x1 = this.place(write.sent), end = this.place(write.at);
      const part = came || end === x1 ? 1 : (this.at(this.now) - x1) / (end - x1);
      const x = x1 + (end - x1) * part, y = y1 + (y2 - y1) * part;
      const refused = came && write.outcome === "refused";
      out.push(line(`write ${this.colour(write.client)} ${refused ? "refused" : ""}`, x1, y1, x, y));
      if (!came) out.push(svg("circle", { class: "dot write " + this.colour(write.client), cx: x, cy: y, r: 4.5 }));
      else out.push(refused ? label("cross", x - 5, y + 4, "✕") : svg("circle", { class: "landed " + this.colour(write.client), cx: x, cy: y, r: 5 }),
        ...this.outcome(write, x + 8, y + 14));
    }
    return out;
  }

  /** What became of a write that has come. */
  outcome(write, x, y) {
    const overwrites = write.overwrites && write.outcome === "accepted";
    const text = [byHand(write) ? "" : shortToken(write.token), write.outcome === "refused" ? "refused" : "",
      overwrites ? `overwrites ${write.overwrites}` : ""].filter((word) => word !== "").join(" ");
    const at = this.roomFor(text, x, y, y - 22) ?? y;
    return [label("verdict-word" + (overwrites || write.outcome === "refused" ? " refused" : ""), x, at, text)];
  }

  marks() {
    const out = [];
    for (const mark of this.run.marks) {
      if (mark.at > this.ns || mark.at < this.from || !this.run.lanes.has(mark.lane)) continue;
      const x = this.place(mark.at), y = this.middle(mark.lane);
      if (mark.kind === "fault") out.push(bolt(x, this.faultTop(mark) - 3));
      if (mark.kind === "lost") out.push(label("loss", x - 6, y + 5, "✕"));
      if (mark.kind === "dead") out.push(label("dead", x - 6, y + 6, "†"));
    }
    for (const number of this.run.verdict.events ?? []) {
      const { at, event } = this.run.told.get(number);
      if (at > this.ns || at < this.from) continue;
      const lane = event.client ?? event.name;
      if (this.run.lanes.has(lane))
        out.push(svg("circle", { class: "witness", cx: this.place(at), cy: this.middle(lane), r: 13 }));
    }
    return out;
  }

  faultTop(mark) {
    const lane = this.run.lanes.get(mark.lane);
    return this.tops[lane.row] + (lane.kind === "client" ? 11 : 6);
  }

  faultNames() {
    const out = [];
    for (const { kind, at, lane, text } of this.run.marks) {
      if (kind !== "fault" || at > this.ns || at < this.from || !this.run.lanes.has(lane) || SHOWN_AS_STATES.includes(text)) continue;
      const x = this.place(at) + 8; /* it stays readable while it comes and leaves */
      const left = Math.max(x + widthOf(text) < this.width ? x : x - 22 - widthOf(text), this.gutter + 2);
      const y = this.faultTop({ lane });
      if (x + widthOf(text) > this.gutter && this.roomFor(text, left, y) !== null) out.push(label("fault-name", left, y, text));
    }
    return out;
  }

  nowLine() {
    const x = this.at(this.now);
    return [line("now", x, TOP - 8, x, this.height - 4), label("now-time", x, TOP - 12, seconds(this.ns))];
  }

  /** Every gap of more than a tenth of a second is written above it. */
  ruler() {
    const out = [];
    const steps = this.run.steps;
    for (let i = 1; i < steps.length && steps[i].at <= this.ns; i++) {
      const passed = steps[i].at - steps[i - 1].at;
      if (passed < 1e8 || steps[i].x < this.left) continue;
      const x1 = this.at(steps[i - 1].x), x2 = this.at(steps[i].x);
      if (x1 < this.gutter || x2 > this.at(this.now) - 30) continue;
      out.push(box("gap", x1 + 3, TOP - 4, x2 - x1 - 6, this.height - TOP), label("gap-name", (x1 + x2) / 2, TOP - 12, "+" + span(passed)));
    }
    return out;
  }

  /* ---- names of the lanes, and how they are now ---- */

  labels() {
    const out = [];
    this.run.tiers.forEach((kind, row) => {
      const lane = this.run.laneInRow(row, this.ns);
      if (lane === null || (lane.id.startsWith("op") && (lane.from > this.ns || lane.to < this.from))) return;
      const y = this.tops[row];
      const short = this.gutter < 100;
      const name = kind === "store" && short ? lane.id.replace("store of ", "store ") : lane.id;
      out.push(label("lane-name " + (kind === "client" ? this.colour(lane.id) : ""), 4, y + 16, name),
        label("lane-state", 4, y + 29, this.stateOf(lane)));
    });
    return out;
  }

  stateOf(lane) {
    const short = this.gutter < 100;
    if (lane.kind === "client") return lane.from > this.ns ? "" : this.clientState(lane);
    if (lane.kind === "store") {
      const writes = this.run.writes.filter((write) => write.name === lane.id && write.at <= this.ns && write.outcome === "accepted");
      return writes.length === 0 || byHand(writes[writes.length - 1]) ? "" : `${short ? "" : "highest token "}${shortToken(writes[writes.length - 1].token)}`;
    }
    const state = lane.states.at(this.ns);
    if (state === null || state.state === "running")
      return state !== null && state.clock !== 0 ? `${this.gutter < 100 ? "" : "clock "}${state.clock > 0 ? "+" : "−"}${(Math.abs(state.clock) / 1e6).toFixed(1)} s` : this.fence(lane);
    return state.state;
  }

  fence(lane) {
    if (this.gutter < 100) return "";
    const fences = [...lane.stored.entries()].map(([name, track]) => [name, track.at(this.ns)])
      .filter(([, state]) => state !== null && state.fence !== "0");
    return fences.length === 0 ? "" : "fence " + fences.map(([name, state]) => `${name} ${shortToken(state.fence)}`).join(", ");
  }

  clientState(lane) {
    if (lane.id.startsWith("op")) return this.ns > lane.to ? "" : "operator";
    const state = lane.states.at(this.ns);
    if (state === "paused" || state === "dead" || state === "opening") return state;
    const held = this.run.holdsAt(this.ns).filter((hold) => hold.client === lane.id);
    const good = held.filter((hold) => hold.deadline(this.ns) >= this.ns);
    if (good.length > 0) return "holds " + good.map((hold) => hold.claim.name).join(", ");
    if (held.length > 0) return this.gutter < 100 ? "too late" : "past its deadline";
    const waits = this.run.waits.some((wait) => wait.claim.client === lane.id && wait.at <= this.ns && wait.to > this.ns);
    return waits ? "waits" : "idle";
  }

  spoken() {
    return this.run.tiers.map((kind, row) => {
      const lane = this.run.laneInRow(row, this.ns);
      return lane === null ? "" : `${lane.id}: ${this.stateOf(lane) || "running"}.`;
    }).join(" ");
  }
}

export { Diagram };
