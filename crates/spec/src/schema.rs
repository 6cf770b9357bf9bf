//! JSON Schemas of the files, for editors.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::{ClusterFile, JobFile};

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
