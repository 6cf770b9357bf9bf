//! Which pods start together, as their owners and annotations say.
