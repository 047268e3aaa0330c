// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// What happens, in sentences.
import { OWNER, HANDLED } from "./run.js";

/* What each script of the redis and redlock engines is for: their own first comments. */
const SCRIPTS = @scripts@;

const RULES = {
  "overlap": "No two clients hold a lock together.",
  "token-order": "Tokens grow from grant to grant.",
  "token-twice": "No token is given twice.",
  "unasked": "Only a claim that waits is granted.",
  "untold": "A holder learns of its loss before it acts on the lock again.",
  "false-loss": "No holder gets a report of a loss that did not happen.",
  "starved": "Every waiter is served in bounded time.",
  "busy": "A try is not turned away from a free lock.",
  "gave-up": "A wait ends only when its time is over.",
  "late": "Every call is answered in bounded time.",
  "kept": "A kept lock is granted to nobody.",
  "jumped": "Waiters are served in the order in which they came.",
  "went-back": "The guarded store accepts no older token.",
  "write-lost": "No acknowledged write is lost behind the guard.",
  "server": "No script on a server fails.",
};

function seconds(ns, digits = 3) {
  return (ns / 1e9).toFixed(digits) + " s";
}

function span(ns) {
  if (ns === Infinity) return "no time limit";
  if (ns >= 9.995e8) return (ns / 1e9).toFixed(2) + " s";
  if (ns >= 1e6) return Math.round(ns / 1e6) + " ms";
  return (ns / 1e6).toFixed(2) + " ms";
}

function list(words) {
  if (words.length < 2) return words.join("");
  return words.slice(0, -1).join(", ") + " and " + words[words.length - 1];
}

/** Tokens of redis begin at the server's clock: their last digits are enough to compare them. */
function shortToken(token) {
  return token.length > 8 ? "…" + token.slice(-5) : token;
}

/** Owners are 40 digits: the client's name is what a reader wants. */
function readable(run, text) {
  return text.replaceAll("\u001f", ":").replace(OWNER, (owner) => "‹" + (run.ownerName(owner) ?? owner.slice(0, 6)) + "›");
}

/** "claim.lua" of "redlock/claim.lua lock:x ...", "nextval()" of "SELECT nextval('tokens')"; else the command itself. */
function verb(text) {
  const sql = /^SELECT (?:(\w+)\()?/.exec(text);
  if (sql !== null) return sql[1] === undefined ? text : sql[1] + "()";
  const word = text.split(" ")[0];
  return word.includes("/") ? word.slice(word.indexOf("/") + 1) : word;
}

function purpose(text) {
  return SCRIPTS[text.split(" ")[0]] ?? null;
}

/* Scripts of redlock whose answer is a vote, by the first number of the answer. Of two of them the vote
 * is a number alone. */
const VOTES = {
  "redlock/claim.lua": { alone: "a vote", 1: "the key is free: it is taken", 0: "refused", "-1": "another epoch" },
  "redlock/fence.lua": { alone: "a vote", 1: "a newer fence is there", 0: "refused", "-1": "another epoch" },
  "redlock/confirm.lua": { 2: "a vote", 0: "refused", "-1": "another epoch" },
};

/* Answers of a server to SQL. */
const SQL_ANSWERS = {
  "pg_advisory_lock()": { "(1 row)": "the session has the lock" },
  "pg_try_advisory_lock()": { t: "t, the session has the lock", f: "f, another session has the lock" },
  "pg_advisory_unlock()": { t: "t, unlocked" },
};

/** What an answer means, where that is known. */
function meaning(request, answer) {
  const sql = SQL_ANSWERS[verb(request)]?.[answer];
  if (sql !== undefined) return sql;
  const votes = VOTES[request.split(" ")[0]];
  const first = /^\d+$/.test(answer) ? "alone" : /^\[(-?\d+)/.exec(answer)?.[1];
  return votes?.[first] ?? null;
}

/* What is published to a session, by its first letter (engines/redis/scripts.h). */
const PUBLISHED = {
  g: "the message that the key is its own now", y: "the message that a claim gives way to it",
  h: "the message that it is next", b: "the message that its lock was broken",
  p: "the question whether anybody listens",
};

function published(text) {
  const letter = /^\[message, [^,]*, (\w)\b/.exec(text)?.[1];
  return PUBLISHED[letter] ?? "a message";
}

function closes(message) {
  return message.parts[0] === "closes";
}

function what(message) {
  if (message.parts.length === 0) return message.to_server ? "a request" : "an answer";
  if (closes(message)) return "the end of the connection";
  if (message.published) return published(message.parts[0]);
  if (message.fatal) return "the notice that the session has ended";
  const words = message.to_server ? message.parts.map(verb) : message.answers.map(verb);
  const kinds = [...new Set(words.filter((word) => word !== ""))];
  if (kinds.length === 0) return message.to_server ? "a request" : "an answer";
  return (message.to_server ? "" : "the answer to ") + list(kinds.slice(0, 3));
}

/** An answer in a few characters. */
function brief(run, message) {
  if (message.parts.length === 0 || message.published || message.fatal || closes(message)) return "";
  const last = message.parts.length - 1;
  const said = meaning(message.answers[last] ?? "", message.parts[last]);
  if (said !== null) return said;
  const text = readable(run, message.parts[last]);
  return text.length > 36 ? text.slice(0, 34) + "…" : text;
}

/** What each node has answered to a claim until then, by the node: "a vote", "refused", ... */
function votes(run, claim, ns) {
  const found = new Map();
  for (const message of run.sent) {
    if (message.at > ns) break;
    if (message.to_server || message.to !== claim.client || message.at < claim.at || message.came > ns) continue;
    message.answers.forEach((request, i) => {
      const said = request.includes(` lock:${claim.name} `) ? meaning(request, message.parts[i]) : null;
      if (said !== null) found.set(message.from, said);
    });
  }
  return found;
}

/* ---- what clients see ---- */

/** Programs without the library have no tokens. */
function byHand(event) {
  return event.token === "0";
}

const TOLD = {
  asked(event) {
    const until = event.until === null ? "and waits as long as it takes"
      : event.until === undefined || event.until <= event.at ? "if it is free"
        : "and waits for up to " + span(event.until - event.at);
    const lease = event.lease === 0 ? "without a lease" : "with a lease of " + span(event.lease);
    return `${event.client} asks for ${event.name}, ${event.mode}, ${lease}, ${until}.`;
  },
  queued: (event) => `${event.client} learns that it is in the queue of ${event.name}.`,
  granted: (event, at) => byHand(event)
    ? `${event.client} has set the key of ${event.name}` +
      (event.deadline === null ? ", without an expiry." : `, which expires in ${span(event.deadline - at)}.`)
    : `${event.client} is granted ${event.name} with token ${shortToken(event.token)}` +
      (event.deadline === null ? ", as long as its session lives."
        : `; it may rely on it for ${span(event.deadline - at)}.`),
  renewed: (event, at) =>
    `${event.client} has renewed ${event.name}: it may rely on it for ` +
    `${event.deadline === null ? "as long as its session lives" : "another " + span(event.deadline - at)}.`,
  released: (event) => `${event.client} releases ${event.name}.`,
  lost: (event) => `${event.client} is told that it has lost ${event.name}, and stops.`,
  answered: (event) => `${event.client} does not get ${event.name}: ${event.status}.`,
  ended: (event) => `The release of ${event.name} by ${event.client} is answered: ${event.status}.`,
  cancelled: (event) => `${event.client} no longer waits for ${event.name}.`,
  acted: (event) => `${event.client} checks ${event.name}, still holds it, and goes on.`,
  broken: (event) => `${event.name} is taken away from ${event.client}.`,
  died: (event) => `${event.client} is dead.`,
  closed: (event) => `${event.client} has closed its client and released everything.`,
  excused: (event) => `${event.client} is paused or cut off.`,
  breaks: (event) => `An operator breaks ${event.name}.`,
  broke: (event) => `The operator's break of ${event.name} is answered: ${event.status}.`,
  wrote: (event) => event.outcome !== "refused" && event.overwrites
    ? `The ${event.name} takes the write of ${event.client}${byHand(event) ? "" : " with token " + shortToken(event.token)}, which has not seen ` +
      `the write of ${event.overwrites}: that update is lost.`
    : byHand(event) ? `The ${event.name} takes the write of ${event.client}.`
    : event.outcome === "refused"
    ? `The ${event.name} refuses the write of ${event.client}: its token ${shortToken(event.token)} is older than one it has seen.`
    : `The ${event.name} accepts the write of ${event.client} with token ${shortToken(event.token)}.`,
};

function told(run, at, event) {
  const claim = run.claims.get(event.claim);
  return TOLD[event.kind]?.({ name: claim?.name, at, ...event }, at) ?? "";
}

function where(client, server) {
  const names = [client, server].filter((one) => one !== null && one !== undefined);
  return names.length > 0 ? ` (${names.join(", ")})` : "";
}

function fault(text, client, server) {
  return `Fault: ${text}${where(client, server)}.`;
}

function healed(text, client, server) {
  return `This fault is over: ${text}${where(client, server)}.`;
}

/* ---- what messages do ---- */

function messageSentences(run, step) {
  const rows = (kind) => step.rows.filter((row) => row[0] === kind)
    .map((row) => run.messages.get(row[2]));
  const came = rows("came"), sent = rows("sent"), lost = rows("lost"), late = rows("late");
  const out = [];
  if (lost.length > 0) out.push(lostSentence(lost));
  if (late.length > 0 && out.length === 0)
    out.push(`${capital(what(late[0]))} from ${late[0].from} to ${late[0].to} does not get through.`);
  if (came.length > 0) out.push(cameSentence(run, came[0], sent));
  else if (sent.length > 0) out.push(sentSentence(sent));
  for (const [, , text] of step.rows.filter((row) => row[0] === "line")) {
    const [, server, client, request, result] = HANDLED.exec(text) ?? [];
    if (server !== undefined) out.push(`${server} has executed ${request} of ${client}: ${result}.`);
  }
  return out;
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

function lostSentence(lost) {
  return lost.length === 1
    ? `${capital(what(lost[0]))} from ${lost[0].from} to ${lost[0].to} is lost.`
    : `${lost.length} messages between ${lost[0].from} and ${lost[0].to} are lost.`;
}

function sentSentence(sent) {
  const from = sent[0].from;
  const targets = new Map();
  const mine = sent.filter((one) => one.from === from);
  const more = mine.filter((one) => !closes(one)); /* a closed connection is named only if nothing was sent */
  for (const message of more.length > 0 ? more : mine) {
    if (!targets.has(what(message))) targets.set(what(message), new Set());
    targets.get(what(message)).add(message.to);
  }
  return `${from} sends ${[...targets].map(([text, to]) => `${text} to ${list([...to])}`).join(", and ")}.`;
}

function cameSentence(run, message, sent) {
  if (run.lanes.get(message.to).states.at(message.came) === "paused")
    return `${capital(what(message))} from ${message.from} reaches ${message.to}, which is paused.`;
  const replies = sent.filter((other) => other.from === message.to);
  if (message.to_server) {
    const reply = replies.find((other) => other.to === message.from);
    const then = reply === undefined ? ""
      : closes(reply) ? ", and closes the connection"
        : `, and answers${brief(run, reply) ? ": " + brief(run, reply) : ""}`;
    return `${message.to} gets ${what(message)} from ${message.from}${then}.`;
  }
  const then = replies.length === 0 ? ""
    : ` It sends ${what(replies[0])} to ${list([...new Set(replies.map((other) => other.to))])}.`;
  const answer = brief(run, message);
  return `${message.to} gets ${what(message)} from ${message.from}${answer ? ": " + answer : ""}.${then}`;
}

function count(n, one, many = one + "s") {
  return `${n} ${n === 1 ? one : many}`;
}

/** Some faults take exclusion back: then two clients may have held the lock together. */
function verdictText({ verdict, promised }) {
  if (!verdict.holds) return `Rule broken: ${verdict.rule}. ${verdict.sentence}`;
  const exclusive = promised.has("overlap");
  return (exclusive ? "Every rule holds: " : "Exclusion was not promised here; every other rule holds: ") +
    `${count(verdict.grants, "grant")}, ${count(verdict.losses, "loss", "losses")} ${exclusive ? "in time" : "reported"}, ` +
    `${count(verdict.refused, "late write")} refused.`;
}

function authorsWords(run, [, at, text]) {
  return at > run.changed ? "Without your change: " + text : text;
}

/** The caption of a step: what matters most in it, in one or two sentences. */
function caption(run, step) {
  const faults = step.rows.filter((row) => row[0] === "fault").map((row) => fault(...row.slice(2)));
  const over = step.rows.filter((row) => row[0] === "healed")
    .map((row) => healed(...row.slice(2)));
  const events = step.rows
    .filter((row) => row[0] === "told" && !["fault", "healed", "excused"].includes(row[3].kind))
    .map((row) => told(run, row[1], row[3]));
  const said = step.rows.filter((row) => row[0] === "say").map((row) => authorsWords(run, row));
  if (said.length > 0) return said.join(" ");
  const main = [...faults, ...events, ...over].filter((text) => text !== "");
  if (main.length === 0) main.push(...messageSentences(run, step));
  if (main.length === 0) /* a pause that is part of another fault */
    main.push(...step.rows.filter((row) => row[0] === "client").map((row) => `${row[2]} is ${row[3]}.`));
  return main.slice(0, 3).join(" ");
}

/* ---- everything in a step ---- */

const DETAILS = {
  sent(run, [, , piece]) {
    const message = run.messages.get(piece);
    const first = message.parts[0] ?? "";
    return {
      text: `${message.from} → ${message.to}: ${what(message)}`,
      code: message.parts.map((part) => readable(run, part)),
      note: message.to_server ? purpose(first) : null,
    };
  },
  late: (run, [, , piece]) => ({ text: `${flight(run, piece)} does not get through` }),
  came: (run, [, , piece]) => ({ text: `${flight(run, piece)} arrives` }),
  lost: (run, [, , piece]) => ({ text: `${flight(run, piece)} is lost` }),
  told: (run, [, at, , event]) => ({ text: told(run, at, event), strong: true }),
  line: (run, [, , text]) => ({ text: "", code: [readable(run, text)] }),
  fault: (run, [, , ...rest]) => ({ text: fault(...rest), strong: true }),
  healed: (run, [, , ...rest]) => ({ text: healed(...rest), strong: true }),
  say: (run, row) => ({ text: authorsWords(run, row), strong: true }),
  client: (run, [, , name, state]) => ({ text: `${name} is ${state}` }),
  server: (run, [, , name, state, clock]) => ({
    text: `${name} is ${state}` + (clock !== 0 ? `, its clock ${clock > 0 ? "ahead" : "behind"} by ${span(Math.abs(clock) * 1e3)}` : ""),
  }),
  stored: (run, [, at, server, name, holder, until, fence]) => ({
    text: run.engine === "sessions" ? `${server}: ${holder === null ? "no session has" : `the session of ${holder} has`} ${name}`
      : holder === null ? `${server} has no key of ${name}`
      : `${server} has the key of ${name} for ${readable(run, holder)}` + (until === null ? "" : `, for ${span(until - at)}`),
    note: fence !== "0" ? `fence ${shortToken(fence)}` : null,
  }),
};

function flight(run, piece) {
  const message = run.messages.get(piece);
  return `${capital(what(message))} (${message.from} → ${message.to})`;
}

/** One entry for each row: text, code (lines as they were sent), note. */
function details(run, step) {
  return step.rows.map((row) => DETAILS[row[0]](run, row)).filter((entry) => entry.text || entry.code);
}

export { RULES, seconds, span, list, shortToken, readable, verb, closes, what, brief, votes, byHand, count, caption, details, verdictText };
