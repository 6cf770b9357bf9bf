//! The one-machine world: real processes, logs, history, adoption after a restart.
