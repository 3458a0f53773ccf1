"""`python -m service` is `routeproof`."""

from service.cli import main

main()
