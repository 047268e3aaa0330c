// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// Moving through a run: buttons, slider, keys, and time that passes by itself.
import { Diagram } from "./diagram.js";
import { caption, seconds } from "./words.js";
import { showDetails, showNow, showRules, showLegend, showOverview } from "./panels.js";

const GRAINS = { all: 1, told: 2, fault: 3 };
const LEAP = 10;

class Player {
  /** onStep() is called for each step that is shown. */
  constructor(find, onStep = () => {}) {
    this.find = find;
    this.onStep = onStep;
    this.run = null;
    this.running = null;
    this.grain = GRAINS.all;
    showLegend(find("legend"));
    this.listen();
  }

  /** Shows another run from its first step, or from the one at this time. */
  load(run, ns = 0) {
    this.stop();
    this.run = run;
    this.shown = null;
    this.find("diagram").replaceChildren();
    this.diagram = new Diagram(run, this.find("diagram"));
    this.find("slider").max = run.steps.length - 1;
    showRules(this.find("rules"), run, (step) => this.go(step));
    showOverview(this.find("overview"), run, (client) => this.diagram.colour(client));
    this.go(run.stepAt(ns));
  }

  /* ---- where we are ---- */

  /** Shows a step, as it is when everything of it has happened. */
  go(step) {
    this.stop();
    this.step = Math.min(this.run.steps.length - 1, Math.max(0, step));
    this.x = this.run.steps[this.step].x;
    this.show();
  }

  /** The next step of this grain in a direction; the last or first one, if there is none. */
  next(way, from = this.step) {
    const steps = this.run.steps;
    for (let i = from + way; i >= 0 && i < steps.length; i += way) {
      if (steps[i].weight >= this.grain) return i;
    }
    return way > 0 ? steps.length - 1 : 0;
  }

  leap(way) {
    let step = this.step;
    for (let i = 0; i < LEAP; i++) step = this.next(way, step);
    this.go(step);
  }

  show() {
    const step = this.run.steps[this.step];
    this.diagram.draw(this.x, this.running === null ? step.at : this.run.time(this.x));
    this.showTexts(step);
  }

  showTexts(step) {
    if (this.shown === step) return;
    this.shown = step;
    this.find("caption").textContent = caption(this.run, step);
    this.find("place").textContent = `step ${this.step + 1} of ${this.run.steps.length}, ${seconds(step.at, 6)}`;
    this.find("slider").value = this.step;
    this.find("slider").setAttribute("aria-valuetext", `step ${this.step + 1}, ${seconds(step.at)}`);
    showDetails(this.find("details"), this.run, step);
    showNow(this.find("now"), this.run, step.at);
    this.onStep();
  }

  /* ---- playing ---- */

  play() {
    if (this.step === this.run.steps.length - 1) this.go(0);
    this.find("play").textContent = "Stop";
    this.find("caption").setAttribute("aria-live", "off");
    this.last = null;
    this.running = requestAnimationFrame((now) => this.tick(now));
  }

  stop() {
    if (this.running !== null) cancelAnimationFrame(this.running);
    this.running = null;
    this.find("play").textContent = "Play";
    this.find("caption").setAttribute("aria-live", "polite");
  }

  tick(now) {
    const steps = this.run.steps;
    const passed = this.last === null ? 0 : Math.min(100, now - this.last);
    this.last = now;
    this.x += (passed / 1000) * Number(this.find("speed").value);
    while (this.step + 1 < steps.length && steps[this.step + 1].x <= this.x) this.step++;
    if (this.step === steps.length - 1) {
      this.go(this.step);
      return;
    }
    this.show();
    this.running = requestAnimationFrame((next) => this.tick(next));
  }

  toggle() {
    if (this.running === null) this.play();
    else this.go(this.step);
  }

  /* ---- what the reader does ---- */

  listen() {
    const click = (id, fn) => this.find(id).addEventListener("click", fn);
    click("first", () => this.go(0));
    click("back", () => this.go(this.next(-1)));
    click("play", () => this.toggle());
    click("on", () => this.go(this.next(1)));
    click("last", () => this.go(this.run.steps.length - 1));
    this.find("slider").addEventListener("input", (event) => this.go(Number(event.target.value)));
    this.find("grain").addEventListener("change", (event) => (this.grain = GRAINS[event.target.value]));
    document.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => {
      if (this.run === null) return;
      this.diagram.measure();
      this.show();
    }).observe(this.find("diagram"));
  }

  key(event) {
    const keys = {
      "ArrowRight": () => this.go(this.next(1)),
      "ArrowLeft": () => this.go(this.next(-1)),
      "PageDown": () => this.leap(1),
      "PageUp": () => this.leap(-1),
      "Home": () => this.go(0),
      "End": () => this.go(this.run.steps.length - 1),
      " ": () => this.toggle(),
    };
    const at = event.target.tagName;
    if (this.run === null || (at === "INPUT" && event.target.type !== "range")) return;
    if (event.altKey || event.ctrlKey || event.metaKey || at === "SELECT" || at === "TEXTAREA" || keys[event.key] === undefined) return;
    if (["BUTTON", "SUMMARY"].includes(at) && event.key === " ") return;
    event.preventDefault();
    keys[event.key]();
  }
}

export { Player };
