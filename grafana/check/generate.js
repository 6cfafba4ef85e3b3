// Writes generated/dashboard.ts, which assigns the dashboard to Grafana's published types. tsc judges it.
//
// A panel's options and its custom field settings are typed by its plugin, so each panel stands alone: an unknown key
// in a plain literal is an error, which a union of panel types would let through.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

const dashboard = JSON.parse(readFileSync(new URL("../dashboards/vrampool.json", import.meta.url), "utf8"));

// Panel type → module of its types. Grafana publishes none for the alert list.
const modules = {
  stat: "stat/panelcfg/x/StatPanelCfg_types.gen",
  "state-timeline": "statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen",
  table: "table/panelcfg/x/TablePanelCfg_types.gen",
  timeseries: "timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen",
};
const untyped = ["alertlist"];
// These publish options only.
const withoutFieldConfig = ["stat"];

const alias = (type) => type.replace(/\W/g, "_");
const out = [
  `import type { Dashboard, Panel, RowPanel } from "@grafana/schema";`,
  ...Object.entries(modules).map(
    ([type, path]) => `import type * as ${alias(type)} from "@grafana/schema/dist/esm/raw/composable/${path}";`,
  ),
  "",
  "// JSON holds an enum's value, not its member.",
  "type Json<T> = T extends string ? `${T}` : T extends (infer U)[] ? Json<U>[]",
  "  : T extends object ? { [K in keyof T]: Json<T[K]> } : T;",
  "",
  "// Grafana publishes no type for the Prometheus data source's queries.",
  "interface Target {",
  "  refId: string; datasource: { type: string; uid: string }; editorMode: 'code'; expr: string; legendFormat: string;",
  "  instant: boolean; range: boolean; format?: 'table' | 'time_series' | 'heatmap';",
  "}",
  "",
];

const { panels, ...rest } = dashboard;
out.push(`export const dashboard: Json<Omit<Dashboard, "panels">> = ${JSON.stringify(rest, null, 2)};`);

for (const panel of panels) {
  const name = `panel_${panel.id}`;
  const json = (value) => JSON.stringify(value, null, 2);
  if (panel.type === "row") {
    out.push(`export const ${name}: Json<RowPanel> = ${json(panel)};`);
    continue;
  }
  const { options, targets, ...common } = panel;
  out.push(`export const ${name}: Json<Panel> = ${json(common)};`);
  if (targets) {
    out.push(`export const ${name}_targets: Target[] = ${json(targets)};`);
  }
  if (modules[panel.type]) {
    out.push(`export const ${name}_options: Json<${alias(panel.type)}.Options> = ${json(options)};`);
    const custom = panel.fieldConfig.defaults.custom;
    if (custom && !withoutFieldConfig.includes(panel.type)) {
      out.push(`export const ${name}_custom: Json<${alias(panel.type)}.FieldConfig> = ${json(custom)};`);
    }
  } else if (!untyped.includes(panel.type)) {
    throw new Error(`panel ${panel.id}: no types are known for panels of type ${panel.type}`);
  }
}

mkdirSync(new URL("generated/", import.meta.url), { recursive: true });
writeFileSync(new URL("generated/dashboard.ts", import.meta.url), out.join("\n") + "\n");
