//! A world made of events: runs scenarios, injects faults, checks every step.
