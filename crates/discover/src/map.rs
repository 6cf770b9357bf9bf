//! What one does with what was read: put it together, look for what is wrong, compare, draw.

mod assemble;
mod check;
mod diff;
mod dot;
mod join;
mod keep;
mod machine;
mod nodes;
mod scene;
mod svg;
mod view;

pub use assemble::{Assembled, NVLINK_DOMAIN, Options, Part, assemble};
pub use check::{MapCost, MapFinding, MapUnit, MeasuredPair, Subject, SubjectKind, check, check_measured};
pub use diff::{MapChange, Sign, diff, not_compared};
pub use dot::dot;
pub use join::join;
pub use keep::keep;
pub use nodes::{as_tree, of_nodes, plain_root, to_nodes};
pub use svg::svg;
