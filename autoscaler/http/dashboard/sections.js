// The parts of the page, each made from one summary (`GET /api/v1/summary`).

import {age, ahead, bar, chip, clock, date, el, empty, hourly, offerName, soft, table, usd} from "/dom.js";

const STATES = ["busy", "idle", "registering", "ready", "starting", "planned", "unknown", "leaving", "stopping"];

export const jobLink = (id) => el("a", {href: `#job/${id}`, class: "mono"}, id);

export function tiles(found) {
  const {jobs, runners} = found;
  const tile = (value, name, kind = "", small = "") =>
    el("div", {class: `tile ${kind || (value ? "" : "zero")}`.trim()}, el("b", {}, String(value), small && el("small", {}, small)), el("span", {}, name));
  return [
    tile(jobs.in_progress, "running", jobs.in_progress ? "good" : ""),
    tile(jobs.queued, found.oldest_queued_at ? `queued, oldest ${age(found.oldest_queued_at, found.at)}` : "queued"),
    tile(jobs.blocked, "blocked", jobs.blocked ? "warn" : ""),
    tile(jobs.unroutable, "unroutable", jobs.unroutable ? "bad" : ""),
    tile(runners.live, "runners", "", runners.limit === null ? "" : ` / ${runners.limit}`),
    tile(jobs.completed, "completed"),
    tile(usd(found.totals.cost_usd), "spent in all"),
  ];
}

export function waits(found) {
  const parts = [];
  if (found.pools.length) {
    parts.push(table(
      [["pool", "first"], ["queued", "number named"], ["on the way", "number named"], ["oldest", "number named"], ["why", "full"]],
      found.pools.map((row) => [
        [el("a", {href: `#job/${row.oldest_job}`}, row.runner_type), soft(target(row.target))],
        String(row.queued), String(row.supply), age(row.oldest_queued_at, found.at), reason(row),
      ])));
  }
  if (found.blocked.length) {
    parts.push(el("h3", {}, "Without a pool"));
    parts.push(table([["jobs", "number named"], ["reason", "full"], ["for example", "tight"]], found.blocked.map((row) => [
      String(row.jobs), row.unroutable ? el("span", {class: "note bad"}, row.reason) : row.reason, jobLink(row.example),
    ])));
  }
  for (const row of found.floors.filter((floor) => floor.free < floor.wanted)) {
    parts.push(el("div", {class: "note"}, `${row.runner_type} keeps ${row.free} of ${row.wanted} ready`
      + (row.refusal ? `: ${row.refusal}` : "")));
  }
  return parts.length ? parts : [empty("Nothing waits.")];
}

const target = (text) => text.replace(/^(repo|org|group):/, "");

function reason(row) {
  const [first] = row.refusals;
  if (!first) return el("span", {class: "soft"}, row.supply < row.queued ? "to be launched" : "runners are on their way");
  const more = row.refused > 1 ? ` and ${row.refused - 1} more` : "";
  return [el("div", {}, first.refusal), soft(offerName(first.offer) + more)];
}

export function funds(found) {
  if (!found.funds.length) return [empty("No funds: only offers with price 0 can be used.")];
  return found.funds.map((fund) => {
    if (fund.kind === "removed") {
      return el("div", {class: "row"}, el("div", {}, el("strong", {}, fund.name), el("span", {class: "soft"}, `${usd(fund.held_usd)} held`)),
        el("div", {class: "note"}, fund.closed));
    }
    const spent = Number(fund.spent_before_usd) + Number(fund.settled_usd);
    const ends = fund.until ? `until ${date(fund.until)}` : fund.kind === "cash" ? `a month, ${fund.period}` : "no end";
    return el("div", {class: "row"},
      el("div", {}, el("strong", {}, fund.name), el("span", {class: "number"}, `${usd(fund.left_usd)} left`)),
      bar([["spent", spent, `${usd(spent)} spent`], ["held", Number(fund.held_usd), `${usd(fund.held_usd)} held`]], Number(fund.limit_usd)),
      el("div", {class: "legend"},
        el("span", {}, el("i", {class: "spent"}), `${usd(spent)} spent`), el("span", {}, el("i", {class: "held"}), `${usd(fund.held_usd)} held`),
        el("span", {}, `of ${usd(fund.limit_usd)}, ${ends}`)),
      fund.closed && el("div", {class: "note"}, `Closed: ${fund.closed}`),
      Number(fund.overrun_usd) > 0 && el("div", {class: "note bad"}, `${usd(fund.overrun_usd)} spent beyond it`),
      !fund.closed && fund.expires_unused && el("div", {class: "soft"}, "At this rate some would expire unused: it is spent first."));
  });
}

export function providers(found) {
  return found.providers.map((row) => {
    const whole = row.limit ?? found.runners.limit ?? found.runners.live;
    return el("div", {class: "row"},
      el("div", {}, el("span", {}, el("strong", {}, row.name), " ", el("span", {class: "soft"}, row.kind)),
        el("span", {class: "number"}, row.limit === null ? `${row.live}, no cap` : `${row.live} of ${row.limit}`)),
      bar(STATES.map((state) => [state, row.by_state[state] || 0, `${row.by_state[state]} ${state}`]), whole),
      el("div", {class: "legend"}, STATES.filter((state) => row.by_state[state]).map((state) =>
        el("span", {}, el("i", {class: state}), `${row.by_state[state]} ${state}`)),
        row.cost_usd && Number(row.cost_usd) > 0 && el("span", {}, `${usd(row.cost_usd)} so far`)),
      row.closed && el("div", {class: "note"}, row.closed));
  });
}

export function cooldowns(found) {
  const rows = found.cooldowns.filter((row) => row.state !== "counting");
  if (!rows.length) return [empty("Every offer is open.")];
  return rows.slice(0, 12).map((row) => el("div", {class: "row"},
    el("div", {}, el("strong", {class: "mono"}, offerName(row.scope)),
      el("span", {class: "number soft"}, row.state === "cooling" ? ahead(row.until, found.at) : row.state.replace("_", " "))),
    soft(row.why)));
}

export function placements(found) {
  if (!found.placements.length) return [empty("Nothing was launched yet.")];
  return found.placements.slice(0, 8).map((row) => el("div", {class: "row"},
    el("div", {}, el("span", {}, el("strong", {}, row.provider), " ", el("span", {class: "mono"}, `${row.instance_type}${row.purchase === "spot" ? " spot" : ""}`)),
      el("span", {class: "number soft"}, clock(row.at))),
    el("div", {class: "legend"}, el("span", {}, row.runner_type), el("span", {}, hourly(row.price_usd_per_hour) + (row.fund ? `/h from ${row.fund}` : "")),
      row.refused_before > 0 && el("span", {}, `${row.refused_before} refused before`), row.job && jobLink(row.job),
      row.reason && row.reason !== "done" && el("span", {class: "note"}, row.reason.replaceAll("_", " ")))));
}

export function jobs(found, at) {
  if (!found.jobs.length) return [empty("No job is like that.")];
  return [table(
    [["job", "full"], ["state", "tight"], ["type", "spare"], ["provider", "spare"], ["waited", "number named"], ["queued", "number tight spare"]],
    found.jobs.map((row) => [
      [el("a", {href: `#job/${row.id}`}, row.name || row.id), soft([row.repository, row.workflow].filter(Boolean).join(" · "))],
      stateChip(row), row.runner_type, row.provider,
      row.started_at ? age(row.queued_at, row.started_at) : row.conclusion ? "" : age(row.queued_at, at),
      row.queued_at ? clock(row.queued_at) : "",
    ]))];
}

export function stateChip(row) {
  const kinds = {in_progress: "good", queued: "accent", blocked: "warn", unroutable: "bad"};
  const failed = row.conclusion && !["success", "skipped", "neutral"].includes(row.conclusion);
  const text = row.conclusion || {in_progress: "running"}[row.state] || row.state;
  return chip(text, failed && row.conclusion === "failure" ? "bad" : kinds[row.state] || "");
}
