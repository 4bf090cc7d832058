"""The filtered cross-hop matrix Lc, exact and in bounded memory."""
