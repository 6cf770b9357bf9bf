//! The versioned, checksummed record of every step.
