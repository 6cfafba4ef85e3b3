#!/usr/bin/env python3
"""Writes prometheusrule.yaml: the alert rules as a resource of the Prometheus Operator. With `--check` it has to be up to date."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RULE = HERE / "prometheusrule.yaml"
HEAD = """\
# Generated from ../prometheus/rules/vrampool.yml by rule.py; do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: vrampool
spec:
"""

rules = (HERE / "../prometheus/rules/vrampool.yml").read_text()
rules = rules[rules.index("groups:") :]
text = HEAD + "".join(f"  {line}\n" if line else "\n" for line in rules.splitlines())
if sys.argv[1:] == ["--check"]:
    sys.exit(None if RULE.read_text() == text else f"{RULE.name} is stale: run grafana/kubernetes/rule.py")
RULE.write_text(text)
