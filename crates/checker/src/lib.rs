//! What must always hold, stated naively and independently of the engine.
