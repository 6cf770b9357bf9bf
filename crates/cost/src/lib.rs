//! How long communication takes on a placement, and the integer tables the engine uses.
