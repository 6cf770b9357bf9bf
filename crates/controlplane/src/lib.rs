//! A real Kubernetes control plane, built from Go modules: for tests, benchmarks and people who want to try.
