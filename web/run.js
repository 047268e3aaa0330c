// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// A run, read from the rows that the simulator has written (sim/story.h): lanes, messages, holds,
// and the steps through which a reader moves.

/* Distance on the page between two moments, in pixels: most of a run happens in microseconds, and
   most of its time passes without anything. */
const NARROW_NS = 40e3;
const GAP_PX = 13;

const OWNER = /\b([0-9a-f]{16})[0-9a-f]{24}\b/g;

/* What a server traces that cannot describe the bytes it gets: "n3 from c0: KV/Txn: ok, revision 8". */
const HANDLED = /^(\w+) from (\w+): (\w+\/\w+): (.*)$/;

function gap(ns) {
  return ns === 0 ? 0 : 4 + GAP_PX * Math.log10(1 + ns / NARROW_NS);
}

/** Spans of one thing's states: the state that it had from a time on. */
class Track {
  constructor() {
    this.spans = [];
  }

  set(at, state) {
    this.spans.push({ at, state });
  }

  /** The last state at that time, or null. */
  at(ns) {
    let low = 0, high = this.spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.spans[middle].at <= ns) low = middle + 1;
      else high = middle;
    }
    return low > 0 ? this.spans[low - 1].state : null;
  }

  /** Calls fn(state, from, to) for each state that overlaps the time between. */
  between(from, to, fn) {
    this.spans.forEach((span, i) => {
      const end = i + 1 < this.spans.length ? this.spans[i + 1].at : Infinity;
      if (span.at <= to && end > from) fn(span.state, span.at, end);
    });
  }
}

/** How long a lease is still good at a time; it moves with every renewal. */
class Hold {
  constructor(claim, at, token, deadline) {
    Object.assign(this, { claim, at, token, to: Infinity, end: null });
    this.deadlines = new Track();
    this.renew(at, deadline);
  }

  get client() {
    return this.claim.client;
  }

  renew(at, deadline) {
    this.deadlines.set(at, { at, deadline: deadline ?? Infinity });
  }

  finish(at, how) {
    if (this.end !== null) return;
    this.to = at;
    this.end = how;
  }

  deadline(ns) {
    return this.deadlines.at(ns)?.deadline ?? Infinity;
  }

  /** What is left of it, between 0 and 1. */
  left(ns) {
    const grant = this.deadlines.at(ns);
    if (grant === null || grant.deadline === Infinity) return 1;
    return Math.max(0, (grant.deadline - ns) / (grant.deadline - grant.at));
  }
}

class Run {
  constructor(data) {
    Object.assign(this, {
      engine: data.engine, seed: data.seed, url: data.url, verdict: data.verdict,
      changed: Infinity, /* when the reader has changed it: later captions may be wrong */
      promised: new Set(data.rules), trace: data.trace, end: data.end,
      rows: data.rows, lanes: new Map(), messages: new Map(), claims: new Map(), holds: [],
      waits: [], writes: [], marks: [], steps: [], told: new Map(), lines: [], names: [],
    });
    this.numbers = new Map(); // "c0" -> the client's name
    this.owners = new Map(); // session (16 digits) -> client
    this.requests = new Map(); // connection -> requests without an answer
    for (const row of data.rows) this.take(row);
    if (this.verdict.sentence !== undefined)
      this.verdict.sentence = this.verdict.sentence.replace(/\bc\d+\b/g, (name) => this.numbers.get(name) ?? name);
    this.sent = [...this.messages.values()];
    this.arrange();
    this.makeSteps();
  }

  /* ---- rows ---- */

  take(row) {
    const [kind, at] = row;
    this["take_" + kind](at, row.slice(2), row);
  }

  lane(id, kind, at) {
    let lane = this.lanes.get(id);
    if (lane === undefined) {
      lane = { id, kind, from: at, to: at, states: new Track(), stored: new Map() };
      this.lanes.set(id, lane);
    }
    lane.to = Math.max(lane.to, at);
    return lane;
  }

  take_sent(at, [piece, connection, from, to, text]) {
    const fromClient = this.lanes.get(from).kind === "client";
    this.lane(from, null, at);
    this.lane(to, null, at);
    const message = {
      piece, connection, from, to, at, to_server: fromClient, came: Infinity, lost: Infinity,
      late: Infinity, parts: text === "" ? [] : text.split("\n"), answers: [],
    };
    if (fromClient) this.remember(message);
    else this.match(message);
    this.messages.set(piece, message);
  }

  /** The first to name an owner is that owner. */
  remember(message) {
    for (const part of message.parts) {
      for (const [, session] of part.matchAll(OWNER)) {
        if (!this.owners.has(session)) this.owners.set(session, message.from);
      }
    }
    if (!this.requests.has(message.connection)) this.requests.set(message.connection, []);
    if (message.parts[0] !== "closes")
      this.requests.get(message.connection).push(...message.parts.map((text) => ({ text, message })));
  }

  /** Answers come in the order of the requests; what was published belongs to none. */
  match(message) {
    const open = this.requests.get(message.connection) ?? [];
    message.published = message.parts.length > 0 && message.parts[0].startsWith("[message,");
    message.fatal = message.parts.length > 0 && message.parts[0].startsWith("FATAL: ");
    if (message.published || message.fatal || message.parts[0] === "closes") return;
    message.answers = message.parts.map(() => open.shift()?.text ?? "");
  }

  take_late(at, [piece]) {
    this.messages.get(piece).late = at;
  }

  take_came(at, [piece]) {
    const message = this.messages.get(piece);
    message.came = at;
    this.lane(message.to, null, at);
  }

  take_lost(at, [piece]) {
    this.messages.get(piece).lost = at;
  }

  take_line(at, [text]) {
    this.lines.push({ at, text });
  }

  take_client(at, [name, state, number]) {
    this.numbers.set(`c${number}`, name);
    this.lane(name, "client", at).states.set(at, state);
    if (state === "dead") this.marks.push({ at, lane: name, kind: "dead" });
  }

  take_server(at, [name, state, clock]) {
    this.lane(name, "server", at).states.set(at, { state, clock });
  }

  take_stored(at, [server, name, holder, until, fence]) {
    const stored = this.lane(server, "server", at).stored;
    if (!stored.has(name)) stored.set(name, new Track());
    stored.get(name).set(at, { holder, until: until ?? Infinity, fence });
  }

  take_fault(at, [text, client, server]) {
    this.marks.push({ at, lane: server ?? client, kind: "fault", text });
  }

  take_healed() {}

  take_say() {}

  take_told(at, [number, event]) {
    this.told.set(number, { at, event });
    if (event.client !== undefined) this.lane(event.client, "client", at);
    const handler = this["told_" + event.kind];
    if (handler !== undefined) handler.call(this, at, event);
  }

  told_asked(at, event) {
    const claim = { ...event, at };
    this.claims.set(event.claim, claim);
    this.waits.push((claim.wait = { claim, at, to: Infinity }));
    if (!this.names.includes(event.name)) this.names.push(event.name);
  }

  told_granted(at, event) {
    const claim = this.claims.get(event.claim);
    claim.wait.to = at;
    claim.held = new Hold(claim, at, event.token, event.deadline);
    this.holds.push(claim.held);
  }

  told_renewed(at, event) {
    this.claims.get(event.claim).held?.renew(at, event.deadline);
  }

  told_released(at, event) {
    this.claims.get(event.claim).held?.finish(at, "released");
  }

  told_lost(at, event) {
    this.claims.get(event.claim).held?.finish(at, "lost");
    this.marks.push({ at, lane: event.client, kind: "lost", text: event.kind });
  }

  told_answered(at, event) {
    this.claims.get(event.claim).wait.to = at;
  }

  told_died(at, event) {
    this.closeAll(at, event.client, "died");
  }

  told_closed(at, event) {
    this.closeAll(at, event.client, "closed");
  }

  closeAll(at, client, how) {
    for (const claim of this.claims.values()) {
      if (claim.client !== client) continue;
      claim.wait.to = Math.min(claim.wait.to, at);
      claim.held?.finish(at, how);
    }
  }

  told_wrote(at, event) {
    this.lane(event.name, "store", at);
    const before = this.writes.filter((write) => write.name === event.name && write.outcome === "accepted").at(-1);
    if (before !== undefined && before.value !== event.seen) event.overwrites = before.client;
    this.writes.push({ ...event, at });
  }

  /* ---- places on the page ---- */

  /** Rows from the top: clients, servers, stores. A process that takes the place of another one
      uses its row. */
  arrange() {
    this.tiers = [];
    for (const kind of ["client", "server", "store"]) {
      const ends = [];
      for (const lane of this.lanesOf(kind)) {
        let row = kind === "client" ? ends.findIndex((end) => end < lane.from) : -1;
        if (row < 0) row = ends.push(0) - 1;
        ends[row] = lane.to;
        lane.row = this.tiers.length + row;
      }
      for (let i = 0; i < ends.length; i++) this.tiers.push(kind);
    }
    this.stack();
  }

  /** In the order of their names' numbers, as far as they have any. */
  lanesOf(kind) {
    const numbers = new Map([...this.numbers].map(([number, name]) => [name, Number(number.slice(1))]));
    return [...this.lanes.values()].filter((one) => one.kind === kind)
      .sort((one, other) => (numbers.get(one.id) ?? 0) - (numbers.get(other.id) ?? 0));
  }

  /** Claims of one client at the same time are drawn above each other. */
  stack() {
    for (const lane of this.lanes.values()) {
      const ends = [];
      for (const claim of this.claims.values()) {
        if (claim.client !== lane.id) continue;
        let level = ends.findIndex((end) => end <= claim.at);
        if (level < 0) level = ends.push(0) - 1;
        claim.level = level;
        ends[level] = claim.held !== undefined ? claim.held.to : claim.wait.to;
      }
      lane.levels = Math.max(1, ends.length);
    }
  }

  laneInRow(row, ns) {
    let found = null;
    for (const lane of this.lanes.values()) {
      if (lane.row === row && (found === null || lane.from <= ns)) found = lane;
    }
    return found;
  }

  /* ---- steps ---- */

  makeSteps() {
    let step = null;
    for (const row of this.rows) {
      const [kind, at] = row;
      if (step === null || step.at !== at) {
        step = { at, rows: [], x: 0, weight: 0 };
        this.steps.push(step);
      }
      step.rows.push(row);
      step.weight = Math.max(step.weight, this.weight(kind, row));
    }
    this.steps = this.steps.filter((one) => one.weight > 0);
    this.steps.forEach((one, i) => {
      const before = this.steps[i - 1];
      one.x = before === undefined ? 0 : before.x + gap(one.at - before.at);
    });
  }

  /** 3: a fault, a loss or a refusal; 2: what clients see; 1: messages; 0: not a step. */
  weight(kind, row) {
    if (["fault", "healed", "say"].includes(kind)) return 3;
    if (kind === "told") {
      const event = row[3];
      if (this.verdict.events?.includes(row[2])) return 3;
      if (["lost", "died", "broken", "breaks"].includes(event.kind)) return 3;
      if (event.outcome === "refused") return 3;
      return ["fault", "healed"].includes(event.kind) ? 0 : 2;
    }
    if (kind === "line") return HANDLED.test(row[2]) ? 1 : 0;
    if (kind === "lost" && this.messages.get(row[2]).parts[0] === "closes") return 0; /* nobody misses it */
    return ["sent", "came", "lost", "late"].includes(kind) ? 1 : 0;
  }

  /** The last step that is not later than this time. */
  stepAt(ns) {
    let step = 0;
    while (step + 1 < this.steps.length && this.steps[step + 1].at <= ns) step++;
    return step;
  }

  /** The step at which this event of the history happened. */
  stepOf(number) {
    const { at } = this.told.get(number);
    return this.steps.findIndex((step) => step.at >= at);
  }

  /** The place of a time between its steps. */
  x(ns) {
    const steps = this.steps;
    if (steps.length === 0 || ns <= steps[0].at) return 0;
    let low = 0, high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle].at <= ns) low = middle + 1;
      else high = middle;
    }
    const before = steps[low - 1], after = steps[low];
    if (after === undefined) return before.x + gap(ns === Infinity ? 1e9 : ns - before.at);
    return before.x + ((after.x - before.x) * (ns - before.at)) / (after.at - before.at);
  }

  /** The time at a place. */
  time(x) {
    const steps = this.steps;
    const after = steps.findIndex((step) => step.x >= x);
    if (after < 0) return steps[steps.length - 1].at;
    if (after === 0) return steps[0].at;
    const before = steps[after - 1];
    const part = (x - before.x) / (steps[after].x - before.x || 1);
    return before.at + part * (steps[after].at - before.at);
  }

  /** The client that has made this claim, by the 40 digits that name it, or by its session's name. */
  ownerName(text) {
    return this.owners.get(text.slice(0, 16)) ?? (this.lanes.has(text) ? text : null);
  }

  /** Messages that have not arrived yet. */
  underWay(ns) {
    return this.sent.filter((message) => message.at <= ns && Math.min(message.came, message.lost) > ns);
  }

  holdsAt(ns) {
    return this.holds.filter((hold) => hold.at <= ns && hold.to > ns);
  }
}

export { Run, OWNER, HANDLED };
