"""The event store in PostgreSQL, which several servers share (extra ``postgres``)."""
