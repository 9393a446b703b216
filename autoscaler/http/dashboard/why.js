// Why a job waits, or why it ran there at that price: `GET /api/v1/jobs/ID` on one screen.

import {ahead, clock, el, hourly, offerName, span, table, usd} from "/dom.js";
import {stateChip} from "/sections.js";

const SHOWN = 12;

export function why(found) {
  const {why: story} = found;
  const kind = {unroutable: "bad", blocked: "warn"}[found.state] || "";
  return [
    el("h2", {id: "why-title"}, found.name || `Job ${found.id}`),
    el("div", {class: "soft"}, stateChip(found), " ", [found.repository, found.workflow, `job ${found.id}`].filter(Boolean).join(" · ")),
    el("p", {class: `sentence ${kind}`.trim()}, story.sentence),
    facts(found, story),
    story.timeline.length > 1 && [el("h3", {}, "What happened when"), stages(story.timeline)],
    story.runner && [el("h3", {}, "Its placement"), placed(story.runner)],
    story.offers.length > 0 && [el("h3", {}, "Offers in rank order"), offers(story, found.at)],
  ];
}

function facts(found, story) {
  const rows = [["Labels", found.labels.join(", ") || "none"]];
  if (story.types.length > 1) rows.push(["Matches", `${story.types.length} runner types; the one with the best placement serves it`]);
  for (const type of story.types) rows.push(["Runner type", type.runner_type + (type.chosen && story.types.length > 1 ? " (chosen)" : "") + best(type.best)]);
  for (const near of story.nearest) rows.push(["Near", `${near.runner_type} lacks ${near.lacks.join(", ")}`]);
  const {pool, runner} = story;
  if (pool) {
    rows.push(["Pool", pool.pool], ["Place", `${pool.place} of ${pool.queued}; ${pool.supply} runners are on their way`]);
    const caps = pool.limits.filter((row) => row.limit !== null).map((row) => `${row.scope} ${row.live} of ${row.limit}`);
    rows.push(["Expected", `about ${span(pool.expected_seconds)} for a job like it`]);
    if (caps.length) rows.push(["Caps", caps.join(", ")]);
  }
  if (runner) {
    rows.push(["Runner", `${runner.id}, ${runner.state}`], ["Offer", `${offerName(runner.offer)} at ${hourly(runner.price_usd_per_hour)}/h`]);
    const held = runner.state === "gone" ? "" : `, ${usd(runner.hold_usd)} held`;
    rows.push(["Cost", `${usd(runner.cost_usd)}${runner.fund ? ` from ${runner.fund}` : ""}${held}`], ["Why there", runner.won]);
    if (runner.detail) rows.push(["Detail", runner.detail]);
  }
  return el("dl", {}, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function best(row) {
  if (!row) return "";
  if (row.refusal) return `: ${[row.offer && offerName(row.offer), row.refusal].filter(Boolean).join(" ")}`;
  return `: best ${offerName(row.offer)} at ${hourly(row.price_usd_per_hour)}/h, ${usd(row.score_usd)} a job`;
}

function stages(timeline) {
  const offset = ({at, seconds}, index) => (index === 0 ? clock(at) : seconds < 0 ? `−${span(-seconds)}` : `+${span(seconds)}`);
  return el("ol", {class: "stages"}, timeline.map((stage, index) => el("li", {}, stage.stage, el("small", {}, offset(stage, index)))));
}

function placed(runner) {
  const won = runner.verdicts.findIndex((row) => !row.refusal);
  return ranked(runner.verdicts, (row, index) => index === won ? el("span", {class: "chip good"}, "chosen") : row.refusal || "ranked after it", "then");
}

function offers(story, at) {
  const list = ranked(story.offers, (row) => {
    if (!row.refusal) return [el("span", {class: "chip good"}, "open"), ` ${row.tier}`, row.price_stale && el("span", {class: "soft"}, ` (price of ${row.price_as_of.slice(0, 10)})`)];
    return row.until ? `${row.refusal}, opens ${ahead(row.until, at)}` : row.refusal;
  }, "now");
  const left = story.offers_total - Math.min(SHOWN, story.offers.length);
  return left > 0 ? [list, el("p", {class: "soft"}, `and ${left} more`)] : list;
}

function ranked(rows, last, title) {
  return table(
    [["#", "number spare"], ["offer", "full mono"], ["$/h", "number named"], ["fund", ""], ["$/job", "number named"], [title, "full"]],
    rows.slice(0, SHOWN).map((row, index) => [
      String(index + 1), offerName(row.offer), hourly(row.price_usd_per_hour), row.fund,
      row.score_usd === null ? "" : usd(row.score_usd), last(row, index),
    ]));
}
