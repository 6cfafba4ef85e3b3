// Holds the resources for Kubernetes against the schemas that the Prometheus Operator publishes, and their rules against the
// shipped ones; and builds them, where kubectl is installed.

import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { parse, parseAllDocuments } from "yaml";

const read = (path) => parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const models = { PodMonitor, PrometheusRule };
const check = (resource) => models[resource.kind] && new models[resource.kind](resource).validate();

const [monitor, rule] = ["podmonitor", "prometheusrule"].map((name) => read(`../kubernetes/${name}.yaml`));
[monitor, rule].forEach(check);
if (!isDeepStrictEqual(rule.spec.groups, read("../prometheus/rules/vrampool.yml").groups)) {
  throw new Error("prometheusrule.yaml is stale: run grafana/kubernetes/rule.py");
}

const built = spawnSync("kubectl", ["kustomize", fileURLToPath(new URL("..", import.meta.url))], { encoding: "utf8" });
if (built.error) {
  console.log("skipped: kubectl is not installed");
} else {
  if (built.status !== 0) throw new Error(built.stderr);
  const resources = parseAllDocuments(built.stdout).map((document) => document.toJS());
  resources.forEach(check);
  const kinds = resources.map(({ kind }) => kind).sort();
  if (!isDeepStrictEqual(kinds, ["ConfigMap", "PodMonitor", "PrometheusRule"])) throw new Error(`built: ${kinds}`);
  const dashboard = JSON.parse(resources.find(({ kind }) => kind === "ConfigMap").data["vrampool.json"]);
  if (dashboard.uid !== "vrampool") throw new Error("the ConfigMap is not the dashboard");
}
console.log("resources for Kubernetes: valid");
