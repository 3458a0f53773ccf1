"""Grafana's dashboards as code. `python -m grafana` writes `dashboards/*.json`; a test compares the two."""
