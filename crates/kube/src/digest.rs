//! Short digests, where a name has to be unique and its source is too long for it.

use ring::digest::{SHA256, digest};

/// The first `bytes` bytes of the SHA-256 of `content`, in hexadecimal digits.
pub(crate) fn hex(content: &[u8], bytes: usize) -> String {
    digest(&SHA256, content).as_ref().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}
