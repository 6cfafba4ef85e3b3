// Parses every PromQL expression of the dashboard and of the rules, and checks what a type cannot say: that every metric
// named in them stands in the README's table, and that every panel explains itself and fits on the grid.

import { readFileSync } from "node:fs";
import { parser } from "@prometheus-io/lezer-promql";
import { parse as parseYaml } from "yaml";

const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
const dashboard = JSON.parse(read("../dashboards/vrampool.json"));
const rules = parseYaml(read("../prometheus/rules/vrampool.yml"));
const readme = read("../README.md");

const unitTests = parseYaml(read("../prometheus/tests/vrampool_test.yml"), { maxAliasCount: -1 });
const tested = new Set(unitTests.tests.flatMap((test) => test.promql_expr_test.map(({ expr }) => expr)));

const failures = [];
const fail = (where, what) => failures.push(`${where}: ${what}`);

// NVIDIA's DCGM exporter, whose series one panel joins by the device's UUID.
const others = ["DCGM_FI_DEV_FB_USED"];
const known = new Set([...readme.match(/(?<=\| `)vrampool_\w+/g), ...others]);
for (const [, name] of readme.matchAll(/\| `(vrampool_\w+)` \| histogram/g)) {
  for (const suffix of ["_bucket", "_sum", "_count"]) known.add(name + suffix);
}
const owner = (selector) => ["broker", "sleep"].find((kind) => selector.startsWith(`vrampool_${kind}_`)) ?? "pool";
const labels = (selector) => [owner(selector) === "sleep" ? "sleeper" : owner(selector), "job", "namespace", "pod", "rank", "instance", "backend", "device"];
let expressions = 0;

function check(where, expr, recorded = new Set()) {
  expressions += 1;
  // `label_replace` names its groups that way.
  if (expr.replaceAll('"$1"', "").includes("$")) {
    return fail(where, `a variable is left over in ${expr}`);
  }
  const metrics = [];
  parser.parse(expr).iterate({
    enter(node) {
      const text = expr.slice(node.from, node.to);
      if (node.type.isError) {
        fail(where, `PromQL error at ${node.from}, near "${expr.slice(node.from, node.from + 20)}": ${expr}`);
      } else if (node.name === "VectorSelector") {
        metrics.push(text);
      }
    },
  });
  if (metrics.length === 0) {
    fail(where, `selects no metric: ${expr}`);
  }
  for (const selector of metrics) {
    const name = selector.match(/^[\w:]+/)?.[0];
    if (name !== "ALERTS" && !known.has(name) && !recorded.has(name)) {
      fail(where, `${name} is neither in the README's table of metrics nor recorded by a rule`);
    }
  }
  return metrics;
}

// Rules.
const recorded = new Set();
const alerts = new Set();
for (const rule of rules.groups.flatMap((group) => group.rules)) {
  const where = `rule ${rule.record ?? rule.alert}`;
  check(where, rule.expr, recorded);
  if (rule.record) {
    recorded.add(rule.record);
  } else {
    alerts.add(rule.alert);
    for (const key of ["summary", "description"]) {
      if (!rule.annotations?.[key]) fail(where, `no ${key}`);
    }
    if (!["warning", "critical"].includes(rule.labels?.severity)) fail(where, "no severity");
    if (!readme.includes(`| \`${rule.alert}\``)) fail(where, "not in the README's table of alerts");
  }
}

// Dashboard. Grafana fills its variables in before Prometheus sees the query.
const variables = dashboard.templating.list;
const builtIn = { __rate_interval: "1m", __interval: "15s", __range: "1h" };
const fill = (expr, choice = "x") => {
  let filled = expr;
  for (const [name, value] of Object.entries(builtIn)) filled = filled.replaceAll(`$${name}`, value);
  for (const { name } of variables) filled = filled.replaceAll(new RegExp(`\\$${name}\\b`, "g"), choice);
  return filled;
};

for (const variable of variables.filter(({ type }) => type === "query")) {
  const [, selector] = variable.query.query.match(/^label_values\((.*), \w+\)$/) ?? [];
  if (selector) check(`variable ${variable.name}`, fill(selector));
  else fail(`variable ${variable.name}`, `not a label_values query: ${variable.query.query}`);
}

const ids = new Set();
const cells = new Map();
for (const panel of dashboard.panels) {
  const where = `panel ${panel.id} "${panel.title}"`;
  if (ids.has(panel.id)) fail(where, "its id is taken");
  ids.add(panel.id);
  const { x, y, w, h } = panel.gridPos;
  if (x + w > 24) fail(where, "wider than the grid");
  for (let column = x; column < x + w; column += 1) {
    for (let line = y; line < y + h; line += 1) {
      const cell = `${column},${line}`;
      if (cells.has(cell)) fail(where, `overlaps panel ${cells.get(cell)}`);
      cells.set(cell, panel.id);
    }
  }
  if (panel.type === "row") continue;
  if (!panel.description) fail(where, "no description");
  const refIds = new Set();
  for (const target of panel.targets ?? []) {
    if (refIds.has(target.refId)) fail(where, `two queries ${target.refId}`);
    refIds.add(target.refId);
    const selectors = check(`${where} ${target.refId}`, fill(target.expr)) ?? [];
    if (selectors.some((selector) => others.includes(selector)) && !tested.has(fill(target.expr, ".*"))) {
      fail(`${where} ${target.refId}`, "the join is not unit-tested by promtool as it is written here");
    }
    for (const selector of selectors.filter((selector) => !others.includes(selector))) {
      for (const label of labels(selector)) {
        if (!selector.includes(`${label}=~"x"`)) fail(where, `${selector} does not select by $${label}`);
      }
    }
  }
}

for (const failure of failures) console.error(failure);
console.log(`${expressions} expressions, ${alerts.size} alerts, ${ids.size} panels: ${failures.length} failures`);
process.exitCode = failures.length ? 1 : 0;
