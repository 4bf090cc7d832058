"""Studies: folders of trials that several processes share."""
