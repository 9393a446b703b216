// The page: listens to the stream of summaries and shows the newest one; jobs are fetched when it changed.

import {NeedsToken, get, keepToken, listen} from "/api.js";
import {age, chip, el, show} from "/dom.js";
import {cooldowns, funds, jobs, placements, providers, tiles, waits} from "/sections.js";
import {why} from "/why.js";

const TABS = {"": "All", in_progress: "Running", queued: "Queued", blocked: "Blocked", unroutable: "Unroutable", completed: "Ended"};
const JOBS_EVERY_MS = 2000;

const dialog = document.getElementById("why");
let latest = null;
let tab = "";
let jobsDue = false;

function render(found) {
  const first = latest === null;
  latest = found;
  show("fleet", found.fleet);
  document.title = `${found.jobs.queued} queued · autoscaler ${found.fleet}`;
  show("state", states(found));
  show("banners", banners(found));
  show("tiles", tiles(found));
  show("waits", waits(found));
  show("funds", funds(found));
  show("providers", providers(found));
  show("cooldowns", cooldowns(found));
  show("placements", placements(found));
  jobsDue = true;
  if (first) refresh();
}

function states(found) {
  return [
    found.leading ? chip("leading", "good") : chip("not leading", "warn", "another replica decides; this one reads the store"),
    ...tightest(found.github).map((budget) => chip(`GitHub ${budget.resource} ${budget.remaining}/${budget.limit}`,
      budget.remaining * 10 < budget.limit ? "warn" : "", `App ${budget.app} at ${budget.owner}`)),
    chip(`policy ${found.policy.hash.slice(0, 8)}`),
  ];
}

/** The budgets that are nearest to their end; there is one for each App, owner and resource. */
function tightest(budgets) {
  return [...budgets].sort((a, b) => a.remaining / a.limit - b.remaining / b.limit).slice(0, 2);
}

function banners(found) {
  const rows = found.switches.map(({target, by}) =>
    el("div", {class: "banner"}, target === "fleet"
      ? `Launches are paused by ${by}. Running jobs go on.`
      : `${target} is drained by ${by}: nothing new is placed there.`));
  if (found.policy.error) {
    rows.unshift(el("div", {class: "banner bad", role: "alert"},
      "The policy file is bad, and the version before it rules:", el("pre", {}, found.policy.error)));
  }
  return rows;
}

// ---- jobs --------------------------------------------------------------------------------------------------

function tabs() {
  show("tabs", Object.entries(TABS).map(([state, name]) =>
    el("button", {type: "button", "data-state": state, "aria-pressed": String(state === tab)}, name)));
}

function refresh() {
  if (!jobsDue || !latest) return;
  refreshJobs();
  if (dialog.open) follow();
}

async function refreshJobs() {
  jobsDue = false;
  const asked = tab;
  try {
    const found = await get(`jobs?limit=20${asked ? `&state=${asked}` : ""}`);
    if (asked === tab && latest) show("jobs", jobs(found, latest.at));
  } catch {
    jobsDue = true; // the stream says what is wrong
  }
}

document.getElementById("tabs").addEventListener("click", ({target}) => {
  if (target.dataset.state === undefined) return;
  tab = target.dataset.state;
  tabs();
  refreshJobs();
});

// ---- one job -----------------------------------------------------------------------------------------------


async function follow() {
  const id = location.hash.match(/^#job\/([0-9.]+)$/)?.[1];
  if (!id) return dialog.close();
  try {
    show("why-body", why(await get(`jobs/${id}`)));
  } catch (error) {
    if (error instanceof NeedsToken) return;
    show("why-body", el("h2", {id: "why-title"}, `Job ${id}`), el("p", {}, error.message));
  }
  if (!dialog.open) dialog.showModal();
}

dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname));
dialog.addEventListener("click", ({target}) => target === dialog && dialog.close());
window.addEventListener("hashchange", follow);

// ---- the connection ----------------------------------------------------------------------------------------

function askForToken() {
  const ask = document.getElementById("ask");
  return new Promise((done) => {
    document.getElementById("ask-form").addEventListener("submit", () => {
      keepToken(document.getElementById("ask-token").value.trim());
      done();
    }, {once: true});
    if (!ask.open) ask.showModal();
  });
}

function away(text) {
  show("state", chip("no connection", "bad", text));
  show("banners", el("div", {class: "banner bad", role: "alert"},
    latest ? `${text} What is shown is ${age(latest.at, new Date().toISOString())} old.` : text));
}

async function run() {
  let wait = 1000;
  for (;;) {
    try {
      await listen((found) => {
        wait = 1000;
        if (found.away) away(`The store does not answer: ${found.away}.`);
        else render(found);
      });
      away("The daemon ended the connection; trying again.");
    } catch (error) {
      if (error instanceof NeedsToken) {
        await askForToken();
        follow();
        continue;
      }
      away("The daemon cannot be reached; trying again.");
    }
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(10000, wait * 2);
  }
}

tabs();
follow();
setInterval(refresh, JOBS_EVERY_MS);
run();
