//! Readers of machines and fabrics: pure parsers and live probes.
