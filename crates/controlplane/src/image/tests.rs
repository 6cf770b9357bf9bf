use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::*;

/// Linked with the C library, and on every machine.
const PROGRAM: &str = "/bin/true";

/// An entry of a tar.
struct Entry {
    path: String,
    mode: u32,
    uid: u64,
    mtime: u64,
    bytes: Vec<u8>,
}

/// In their order.
fn entries(tar: &[u8]) -> Vec<Entry> {
    let mut archive = tar::Archive::new(tar);
    let read = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        let path = entry.path().unwrap().display().to_string();
        let header = entry.header();
        Entry {
            path: path.trim_end_matches('/').to_owned(),
            mode: header.mode().unwrap(),
            uid: header.uid().unwrap(),
            mtime: header.mtime().unwrap(),
            bytes,
        }
    };
    archive.entries().unwrap().map(read).collect()
}

fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_archive_of_the_release_is_an_oci_layout_and_one_of_docker_with_equal_bytes_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let image = Image::of_release(RELEASE, Path::new(PROGRAM)).unwrap();
    let files = ["first.tar", "second.tar"].map(|name| folder.path().join(name));
    let digests = files.each_ref().map(|file| image.write(file).unwrap());
    let [first, second] = files.map(|file| fs::read(file).unwrap());
    assert!(first == second, "the same image was written as other bytes");
    assert_eq!(digests[0], digests[1]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");

    let all = entries(&first);
    let names: Vec<&String> = all.iter().map(|entry| &entry.path).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert!(all.iter().all(|entry| (entry.uid, entry.mtime) == (0, 0)));
    let blobs: BTreeMap<&str, &Vec<u8>> = all.iter().map(|entry| (&*entry.path, &entry.bytes)).collect();
    let blob = |described: &Value| {
        let (digest_said, size) =
            (described["digest"].as_str().unwrap(), described["size"].as_u64().unwrap());
        let bytes = blobs[format!("blobs/{}", digest_said.replace(':', "/")).as_str()];
        assert_eq!((digest_said, size), (&*format!("sha256:{}", digest(bytes)), bytes.len() as u64));
        bytes
    };
    let read = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    assert_eq!(read(blobs["oci-layout"]), json!({ "imageLayoutVersion": "1.0.0" }));
    let described = &read(blobs["index.json"])["manifests"][0];
    assert_eq!(described["digest"], digests[0]);
    assert_eq!(described["annotations"]["io.containerd.image.name"], RELEASE);
    let manifest = read(blob(described));
    let configuration = read(blob(&manifest["config"]));
    let layer = blob(&manifest["layers"][0]);
    let mut content = Vec::new();
    GzDecoder::new(layer.as_slice()).read_to_end(&mut content).unwrap();
    assert_eq!(configuration["rootfs"]["diff_ids"], json!([format!("sha256:{}", digest(&content))]));
    assert_eq!(configuration["config"]["User"], "65532:65532");
    assert_eq!(configuration["config"]["Entrypoint"], json!(["/usr/local/bin/phalanx"]));
    // What Docker reads names the same blobs.
    let of_docker = &read(blobs["manifest.json"])[0];
    assert_eq!(of_docker["RepoTags"], json!([RELEASE]));
    let path =
        |described: &Value| format!("blobs/{}", described["digest"].as_str().unwrap().replace(':', "/"));
    assert_eq!(of_docker["Config"], path(&manifest["config"]));
    assert_eq!(of_docker["Layers"], json!([path(&manifest["layers"][0])]));
    has_what_the_program_needs(&entries(&content));
}

fn has_what_the_program_needs(contents: &[Entry]) {
    let names: Vec<&String> = contents.iter().map(|entry| &entry.path).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert!(contents.iter().all(|entry| (entry.uid, entry.mtime) == (0, 0)));
    let find = |path: &str| contents.iter().find(|entry| entry.path == path);
    let program = find("usr/local/bin/phalanx").unwrap();
    assert_eq!(program.mode, 0o755);
    assert!(program.bytes == fs::read(PROGRAM).unwrap());
    for path in ["tmp", "etc/passwd", "etc/nsswitch.conf", "etc/ssl/certs/ca-certificates.crt"] {
        assert!(find(path).is_some(), "{path} is not in {names:?}");
    }
    let library = contents.iter().find(|entry| entry.path.ends_with("/libc.so.6"));
    assert!(library.is_some_and(|library| !library.bytes.is_empty()), "{names:?}");
    assert!(names.iter().any(|name| name.contains("/ld-linux")), "{names:?}");
    assert!(!names.iter().any(|name| name.ends_with("/sh")), "there is no shell");
}

#[test]
fn a_name_without_registry_or_tag_is_refused_and_a_program_that_is_not_there_is_named() {
    let program = Path::new(PROGRAM);
    for name in ["registry.example.com/phalanx:0.1.0", "localhost/a:b", "host:5000/team/phalanx:V1", RELEASE]
    {
        Image::of_release(name, program).unwrap();
    }
    for name in ["phalanx", "phalanx:0.1.0", "team/phalanx:1", "host.example/phalanx", "host.example/:1", ""]
    {
        let error = Image::of_release(name, program).unwrap_err().to_string();
        assert!(error.contains("such as docker.io/library/phalanx:0.1.0"), "{name}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let absent = Image::of_release(RELEASE, &folder.path().join("absent")).unwrap();
    let error = absent.write(&folder.path().join("image.tar")).unwrap_err().to_string();
    assert!(error.contains("cannot read") && error.contains("absent"), "{error}");
}

/// An executable that a linker wrote has some.
#[test]
fn a_file_with_holes_is_written_as_containerd_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let (file, archive) = (folder.path().join("holes"), folder.path().join("image.tar"));
    let holes = fs::File::create(&file).unwrap();
    holes.set_len(1 << 20).unwrap();
    io::Write::write_all(&mut &holes, b"begin").unwrap();
    Image::of_release(RELEASE, Path::new(PROGRAM))
        .unwrap()
        .with_file(&file, "holes")
        .write(&archive)
        .unwrap();
    let all = entries(&fs::read(&archive).unwrap());
    let layer = all.iter().max_by_key(|entry| entry.bytes.len()).unwrap();
    let mut content = Vec::new();
    GzDecoder::new(layer.bytes.as_slice()).read_to_end(&mut content).unwrap();
    let mut archive = tar::Archive::new(content.as_slice());
    let of_it = archive.entries().unwrap().map(Result::unwrap);
    let kinds: Vec<_> = of_it
        .filter(|entry| entry.path().unwrap().ends_with("holes"))
        .map(|entry| entry.header().entry_type())
        .collect();
    assert_eq!(kinds, [tar::EntryType::Regular]);
}
