//! Images as `docker save` writes them, made of one static program: no registry is reached.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use crate::error::Error;

use super::needs::BUSYBOX;

/// The image that pods of tests name: a shell and what belongs to it. With `imagePullPolicy: Never`.
pub const IMAGE: &str = "docker.io/phalanx/busybox:1";
/// What holds the namespaces of a pod.
pub(super) const PAUSE: &str = "docker.io/phalanx/pause:1";

/// The names under which the shell finds what it runs.
const APPLETS: [&str; 16] = [
    "sh", "sleep", "env", "cat", "echo", "true", "false", "kill", "wget", "nc", "mkdir", "ls", "touch",
    "test", "date", "seq",
];

/// An image that can be imported.
pub(super) struct Image {
    name: &'static str,
    entry_point: &'static [&'static str],
}

impl Image {
    pub(super) const fn pause() -> Self {
        Self { name: PAUSE, entry_point: &["/bin/sleep", "inf"] }
    }

    pub(super) const fn busybox() -> Self {
        Self { name: IMAGE, entry_point: &["/bin/sh"] }
    }

    /// Writes it as an archive of one layer.
    pub(super) fn write(&self, to: &Path) -> Result<(), Error> {
        self.archive()
            .and_then(|archive| File::create(to)?.write_all(&archive))
            .map_err(Error::io("write", to))
    }

    fn archive(&self) -> io::Result<Vec<u8>> {
        let layer = Self::layer()?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &layer);
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let configuration = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": {"Entrypoint": self.entry_point, "Env": ["PATH=/bin:/usr/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
            "history": [],
        });
        let manifest = json!([{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]);
        let mut archive = tar::Builder::new(Vec::new());
        append(&mut archive, "config.json", configuration.to_string().as_bytes())?;
        append(&mut archive, "layer.tar", &layer)?;
        append(&mut archive, "manifest.json", manifest.to_string().as_bytes())?;
        archive.into_inner()
    }

    fn layer() -> io::Result<Vec<u8>> {
        let mut layer = tar::Builder::new(Vec::new());
        for folder in ["bin", "tmp", "proc", "sys", "dev", "etc"] {
            let mut header = header(0);
            header.set_entry_type(tar::EntryType::Directory);
            layer.append_data(&mut header, folder, io::empty())?;
        }
        append(&mut layer, "bin/busybox", &std::fs::read(BUSYBOX)?)?;
        for name in APPLETS {
            let mut header = header(0);
            header.set_entry_type(tar::EntryType::Symlink);
            layer.append_link(&mut header, format!("bin/{name}"), "busybox")?;
        }
        layer.into_inner()
    }
}

fn header(bytes: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes as u64);
    header.set_mode(0o755);
    header.set_mtime(0);
    header
}

fn append(archive: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(bytes.len()), path, bytes)
}
