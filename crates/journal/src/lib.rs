//! The versioned, checksummed record of every step.
//!
//! A journal is a folder of segments, `000001.journal`, `000002.journal`, …; a segment is text:
//!
//! ```text
//! crc32 {"format":3,"engine":"0.1.0","epoch":7,"configuration":"…","costs":"…","created_at":1767225600000}
//! crc32 {"facts":{"seq":1,"now":1767225600000,"inputs":[…]}}
//! crc32 {"decisions":{"seq":1,"plan":[…],"effects":[…],"changes":[…]}}
//! ```
//!
//! The checksum is the CRC-32 (IEEE 802.3) of the JSON bytes in eight lower-case hex digits. Facts are
//! appended before a step and its decisions after it, so a step that crashes can be replayed. The same version of the
//! engine decides a recorded step again; another version commits the recorded plan. A step that planned nothing has no
//! `plan`. Format 1 recorded no plans: the reader derives them from the changes. A record that takes more than
//! [`PART_BYTES`] is several lines of the same kind and `seq`, numbered as in `"part":[1,3]`; readers give it as one. The first facts of a segment are a complete sync of the world: a segment needs no other to be understood.
//!
//! One step costs two writes and one `fdatasync`:
//!
//! ```text
//! journal.facts(now, &inputs)?;  engine.step(now, &inputs, &mut out);
//! journal.decisions(&out)?;      journal.sync()?;      // only now may the effects leave
//! ```
//!
//! When any of the three calls fails, the same call may be repeated: nothing half-written is built upon.
//! A segment is never opened again for writing; each start of a daemon begins the next one.
#![forbid(unsafe_code)]

mod error;
mod format;
mod format_1;
mod line;
mod read;
mod repair;
mod segment;
mod storage;
mod write;

pub use error::{JournalError, Torn};
pub use format::{FORMAT, FORMAT_OLDEST, FORMAT_WITH_PLANS, Header, Record};
pub use line::{LINE_BYTES_MAX, PART_BYTES};
pub use read::{Contents, Next, Reader, open, read, read_from, segment_state};
pub use repair::{cut_at_damage, repair};
pub use segment::{Segment, Skipped, Usable, retain, segments, usable_segment};
pub use storage::{Allocate, FileStorage, RESERVE_BYTES, Storage};
pub use write::Journal;
