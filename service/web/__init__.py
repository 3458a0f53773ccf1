"""What people and scrapers see over HTTP."""
