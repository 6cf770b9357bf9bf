//! Archives of one layer that are an OCI image layout and what `docker save` writes at the same time. Equal contents give equal
//! bytes: there is no time in an archive, and its entries are sorted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Some tools want a time of creation.
const NEVER: &str = "1970-01-01T00:00:00Z";
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// A layer that is being written: digests of the tar and of what it is compressed to are counted on the way.
pub(super) type Layer = tar::Builder<Digest<GzEncoder<Digest<File>>>>;

/// What an image says of itself.
#[derive(Clone, Debug)]
pub(super) struct About {
    /// With registry and tag.
    pub(super) name: String,
    pub(super) entry_point: Vec<String>,
    /// Of the entry point, if the pod names none.
    pub(super) arguments: Vec<String>,
    /// `UID:GID`; nothing for root.
    pub(super) user: Option<String>,
}

/// Writes an archive whose layer `fill` appends to, and says the digest of its manifest. The layer lies beside the archive
/// meanwhile.
pub(super) fn write(
    to: &Path,
    about: &About,
    compression: Compression,
    fill: impl FnOnce(&mut Layer) -> io::Result<()>,
) -> io::Result<String> {
    let layer = to.with_extension("layer");
    let done = write_layer(&layer, compression, fill).and_then(|(content, blob)| {
        let (manifest, entries) = describe(about, &content, &blob);
        write_entries(to, &layer, &blob, &entries)?;
        Ok(manifest.digest)
    });
    // It may never have been there.
    let _ = fs::remove_file(&layer);
    done
}

/// A digest, and how many bytes it is of.
#[derive(Clone, Debug)]
struct Blob {
    /// With `sha256:` before it.
    digest: String,
    bytes: u64,
}

impl Blob {
    fn of(text: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, text);
        Self { digest: hex(&digest), bytes: text.len() as u64 }
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }

    fn describe(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.bytes })
    }
}

fn hex(digest: &ring::digest::Digest) -> String {
    let digits: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// The digest of the tar, and that of the file.
fn write_layer(
    to: &Path,
    compression: Compression,
    fill: impl FnOnce(&mut Layer) -> io::Result<()>,
) -> io::Result<(Blob, Blob)> {
    let gzip = GzEncoder::new(Digest::new(File::create(to)?), compression);
    let mut layer = tar::Builder::new(Digest::new(gzip));
    layer.follow_symlinks(false);
    // containerd does not know the entries of files with holes.
    layer.sparse(false);
    fill(&mut layer)?;
    let (gzip, content) = layer.into_inner()?.finish();
    let (_, blob) = gzip.finish()?.finish();
    Ok((content, blob))
}

/// The manifest, and all entries of an archive but its layer by their names.
fn describe(about: &About, content: &Blob, layer: &Blob) -> (Blob, BTreeMap<String, Vec<u8>>) {
    let mut process = json!({
        "Entrypoint": about.entry_point,
        "Env": ["PATH=/usr/local/bin:/bin:/usr/bin:/usr/sbin"],
        "WorkingDir": "/",
    });
    if !about.arguments.is_empty() {
        process["Cmd"] = json!(about.arguments);
    }
    if let Some(user) = &about.user {
        process["User"] = json!(user);
    }
    let configuration = json!({
        "created": NEVER, "architecture": ARCHITECTURE, "os": "linux", "config": process,
        "rootfs": { "type": "layers", "diff_ids": [content.digest] },
        "history": [{ "created": NEVER, "created_by": "phalanx-controlplane" }],
    });
    let configuration = configuration.to_string().into_bytes();
    let of_configuration = Blob::of(&configuration);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": of_configuration.describe(CONFIGURATION), "layers": [layer.describe(LAYER)],
    });
    let manifest = manifest.to_string().into_bytes();
    let of_manifest = Blob::of(&manifest);
    let mut described = of_manifest.describe(MANIFEST);
    described["platform"] = json!({ "architecture": ARCHITECTURE, "os": "linux" });
    // containerd and Podman look for the first, and OCI defines the second.
    described["annotations"] = json!({
        "io.containerd.image.name": about.name, "org.opencontainers.image.ref.name": about.name,
    });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [described] });
    let of_docker = json!([{
        "Config": of_configuration.path(), "RepoTags": [about.name], "Layers": [layer.path()],
    }]);
    let entries = BTreeMap::from([
        (of_configuration.path(), configuration),
        (of_manifest.path(), manifest),
        ("index.json".to_owned(), index.to_string().into_bytes()),
        ("manifest.json".to_owned(), of_docker.to_string().into_bytes()),
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
    ]);
    (of_manifest, entries)
}

fn write_entries(
    to: &Path,
    layer: &Path,
    blob: &Blob,
    entries: &BTreeMap<String, Vec<u8>>,
) -> io::Result<()> {
    let mut archive = tar::Builder::new(File::create(to)?);
    for folder in ["blobs", "blobs/sha256"] {
        append_folder(&mut archive, folder, 0o755)?;
    }
    let layer_path = blob.path();
    let (before, after): (Vec<_>, Vec<_>) = entries.iter().partition(|(name, _)| **name < layer_path);
    for (name, text) in before {
        append(&mut archive, name, 0o644, text)?;
    }
    archive.append_data(&mut header(blob.bytes, 0o644), &layer_path, File::open(layer)?)?;
    for (name, text) in after {
        append(&mut archive, name, 0o644, text)?;
    }
    archive.into_inner()?.flush()
}

/// Of root, and without a time.
pub(super) fn header(bytes: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

pub(super) fn append_folder<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
) -> io::Result<()> {
    let mut header = header(0, mode);
    header.set_entry_type(tar::EntryType::Directory);
    archive.append_data(&mut header, path, io::empty())
}

pub(super) fn append_link<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    target: &str,
) -> io::Result<()> {
    let mut header = header(0, 0o777);
    header.set_entry_type(tar::EntryType::Symlink);
    archive.append_link(&mut header, path, target)
}

pub(super) fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    bytes: &[u8],
) -> io::Result<()> {
    archive.append_data(&mut header(bytes.len() as u64, mode), path, bytes)
}

/// Counts the digest of what is written through it.
pub(super) struct Digest<W> {
    to: W,
    context: ring::digest::Context,
    bytes: u64,
}

impl<W> Digest<W> {
    fn new(to: W) -> Self {
        Self { to, context: ring::digest::Context::new(&ring::digest::SHA256), bytes: 0 }
    }

    fn finish(self) -> (W, Blob) {
        (self.to, Blob { digest: hex(&self.context.finish()), bytes: self.bytes })
    }
}

impl<W: Write> Write for Digest<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.context.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
