//! What a pod needs and which nodes may have it, as kube-scheduler would judge.
