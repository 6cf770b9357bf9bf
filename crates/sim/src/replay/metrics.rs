//! What a replay comes to in numbers.
