//! Real daemons, real processes, and what they do when either is killed.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod account;
mod accounts;
mod api;
mod arrays;
mod budgets;
mod calendar;
mod changes;
mod clocks;
mod conformance;
mod dashboard;
mod declared;
mod defrag;
mod disk_full;
mod elastic;
mod endpoints;
mod estimates;
mod gang_start;
mod health;
mod hostile;
mod idempotency;
mod limits;
mod lists;
mod mpi;
mod nodes;
mod notices;
mod oidc;
#[path = "../page/mod.rs"]
mod page;
mod ports;
mod preflight;
mod progress;
mod python;
mod queues;
mod rank_death;
mod restart;
mod retention;
mod roles;
mod seeds_story;
mod service;
mod stopping;
#[path = "../story/mod.rs"]
mod story;
mod support;
mod swarm;
mod terminal;
mod timing;
mod tls;
mod tutorial;
mod users;
mod wait;
mod whatif;
