"""The graph room: from who interacted with what to the propagation operator that every graph model uses."""
