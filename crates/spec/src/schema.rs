//! JSON Schemas of the files, for editors.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::{ClusterFile, JobFile, QueueFile};

/// Schema of a job file (JSON Schema, draft 2020-12).
#[must_use]
pub fn job_schema() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<JobFile>().to_value()
}

/// Schema of a cluster file (JSON Schema, draft 2020-12).
#[must_use]
pub fn cluster_schema() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<ClusterFile>().to_value()
}

/// Schema of a queue file (JSON Schema, draft 2020-12).
#[must_use]
pub fn queues_schema() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<QueueFile>().to_value()
}
