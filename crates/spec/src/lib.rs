//! What users write: job and cluster files, parsed, validated, turned into the model.
