"""Tables, figures and pages: pure functions of the recorded results."""
