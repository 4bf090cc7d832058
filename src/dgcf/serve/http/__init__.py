"""The HTTP interface: routes, their schemas and problem documents."""
