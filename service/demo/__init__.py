"""A provider that plays scripted answers byte for byte: what the demo and the tests probe."""
