//! What runs on a GPU node: the shim that holds a rank, isolation, limits.
