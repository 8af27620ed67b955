"""Phases, the engine that runs them, the run journal and the event timeline."""
