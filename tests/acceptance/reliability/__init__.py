"""Replicas, kills, outages, odd clocks: what a year brings, with real processes and real PostgreSQL."""
