//! The Kubernetes world: watches become facts, orders become API calls.
//!
//! Kubernetes types stay in this crate. State is the cluster's objects and nothing else: what the engine has to
//! know again after a restart is read back from pods, their owners and our own resources.
//!
//! | module | what lives there |
//! |---|---|
//! | `api` | the shapes of objects: only the fields that are used, so that 40,000 pods stay small |
//! | `crd` | our own resources: queues, the fabric, what stands in a node |
//! | `recognise` | which pods start together, as their owners and annotations say |
//! | `filter` | what a pod needs and which nodes may have it, as kube-scheduler filters nodes |
//! | `messages` | what the watches report and what the API is asked for |
//! | `cluster` | the objects of the cluster as last seen, in the engine's words |
//! | `constraint` | volumes, claims and rules between pods: narrow, check, prepare, undo |
//! | `gang` | the life of a gang between the API and the engine |
//! | `log` | what a process says of itself, line by line |
//! | `quantity` | amounts as Kubernetes writes them |
//! | `rights` | what the API server has to allow, as a table and as the manifest made of it |
//! | `digest` | short digests for names |
//! | `connect` | the way to the API server |
//! | `dra` | claims, and which devices satisfy them |
//! | `plugin` | the device plugin of a node, where there is no DRA |
//! | `agent` | a node's agent: what it finds there, the device plugin, and who really has which devices |
//! | `server` | the HTTP API of a cluster, for people: it only reads |
//! | `submit` | jobs of people as manifests |
//! | `user` | what people ask of a cluster, with their own rights |
//! | `world` | the scheduler as a process |

#![forbid(unsafe_code)]

pub mod agent;
pub mod api;
pub mod cluster;
mod connect;
pub mod constraint;
pub mod crd;
mod digest;
pub mod dra;
pub mod filter;
pub mod gang;
pub mod messages;
pub mod plugin;
pub mod quantity;
pub mod recognise;
pub mod rights;
pub mod server;
pub mod submit;
pub mod user;
pub mod world;

/// For tests and benchmarks, which may not depend on them directly.
pub use {k8s_openapi, kube};
