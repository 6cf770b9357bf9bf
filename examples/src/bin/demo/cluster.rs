//! The declared clusters: two nodes read from one machine description, with other GPUs busy in each act.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Settings;

/// The hybrid cube mesh of a V100 machine: two NVLink islands of four, tied by single links.
const TOPO: &str = include_str!("../../../../fixtures/topo_m/v100-hcm-8.txt");

/// One cluster file per act.
pub(crate) struct Files {
    /// 6 GPUs free on node-a, 2 on node-b.
    pub(crate) six_and_two: PathBuf,
    /// 4 free on each.
    pub(crate) four_and_four: PathBuf,
    /// 3 free on node-a; on node-b 6, one island among them.
    pub(crate) three_and_six: PathBuf,
    /// Where ranks keep their checkpoints.
    pub(crate) checkpoints: PathBuf,
}

pub(crate) fn write(folder: &Path, settings: &Settings) -> Result<Files, String> {
    let text = match &settings.topo {
        None => TOPO.to_owned(),
        Some(path) => fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?,
    };
    let save = |name: &str, text: &str| -> Result<PathBuf, String> {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(path)
    };
    save("topo.txt", &text)?;
    let cluster = |name: &str, a: &str, b: &str| save(name, &cluster_file(&settings.model, a, b));
    let checkpoints = folder.join("checkpoints");
    fs::create_dir(&checkpoints).map_err(|e| e.to_string())?;
    Ok(Files {
        six_and_two: cluster("six-and-two.yaml", "0-1", "0-5")?,
        four_and_four: cluster("four-and-four.yaml", "4-7", "0-3")?,
        three_and_six: cluster("three-and-six.yaml", "3-7", "0-1")?,
        checkpoints,
    })
}

fn cluster_file(model: &str, busy_a: &str, busy_b: &str) -> String {
    let node = |name: &str, busy: &str| {
        format!(
            "  - name: {name}\n    topo: topo.txt\n    model: {model:?}\n    gpu_memory: 32GB\n    cpus: 96\n    \
             memory: 768GB\n    busy: [\"{busy}\"]\n"
        )
    };
    format!(
        "name: demo\nlevels: [cluster]\nlinks:\n  node: {{bandwidth: 12.5GB/s, latency: 5us}}\nnodes:\n{}{}",
        node("node-a", busy_a),
        node("node-b", busy_b)
    )
}
