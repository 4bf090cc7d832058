"""The filtered cross-hop matrix Lc: exact, in bounded memory."""
