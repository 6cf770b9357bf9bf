//! What people and programs say to Phalanx: requests and documents, and the HTTP API over them.
//!
//! A world answers verbs ([`protocol`]); HTTP is a translation of routes into verbs and of answers into documents, and the
//! client ([`client`]) translates the other way.

#![forbid(unsafe_code)]

mod authorities;
pub mod client;
mod guarded;
pub mod http;
pub mod oidc;
mod peer;
pub mod protocol;
pub mod tokens;

pub use peer::{ClusterUser, Peer, Reply};
