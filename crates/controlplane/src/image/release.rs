//! The image of the program `phalanx`: the program, the shared libraries that it is linked with, certificates of authorities, and a
//! user that is not root. There is no shell in it.
//!
//! The program is linked dynamically on purpose: the agent of a node opens NVIDIA's management library, which the container
//! runtime puts beside the C library, and a static program opens none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::error::Error;

use super::archive::{Layer, append, append_folder, append_link};
use super::{MERGED, NAME_SERVICE, printed};

/// Who the program runs as, `UID:GID`; the manifests say the same.
pub(super) const USER: &str = "65532:65532";
/// Where the program is in the image.
pub(super) const PROGRAM: &str = "usr/local/bin/phalanx";

const PASSWD: &str =
    "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";
/// Where Debian has the certificates of all authorities in one file, and where programs look for it.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Where other distributions have them.
const AUTHORITIES_ELSEWHERE: [&str; 2] = ["/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];
const C_LIBRARY: &str = "libc.so.6";
/// What the C library opens by name, and what NVIDIA's library is linked with. They lie beside the C library.
const OPENED_BY_NAME: [&str; 7] = [
    "libdl.so.2",
    "libm.so.6",
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
];
/// Of the distribution that the libraries come from: NVIDIA's container runtime asks the second for where libraries are, and
/// scanners read the first.
const OF_DISTRIBUTION: [&str; 2] = ["/etc/os-release", "/etc/debian_version"];
/// Licences of what is copied, where Debian has them.
const LICENCES: [&str; 3] = ["ca-certificates", "libc6", "libgcc-s1"];

/// What is at a path.
enum Entry {
    Folder(u32),
    /// Read when it is written.
    File {
        from: PathBuf,
        mode: u32,
    },
    Text(&'static str),
    Link(&'static str),
}

/// All that the image of a program has, by path without the first `/`.
pub(super) struct Contents(BTreeMap<String, Entry>);

impl Contents {
    pub(super) fn of(program: &Path) -> Result<Self, Error> {
        let mut contents = Self(BTreeMap::new());
        for (name, target) in MERGED {
            contents.add(name, Entry::Link(target));
            contents.add(target, Entry::Folder(0o755));
        }
        for folder in ["dev", "proc", "sys"] {
            contents.add(folder, Entry::Folder(0o755));
        }
        contents.add("tmp", Entry::Folder(0o1777));
        for (name, text) in [("group", GROUP), ("nsswitch.conf", NAME_SERVICE), ("passwd", PASSWD)] {
            contents.add(&format!("etc/{name}"), Entry::Text(text));
        }
        contents.copy(program, PROGRAM, 0o755);
        for library in libraries(program)? {
            contents.copy(&library, &place_of(&library), 0o755);
        }
        contents.copy(authorities()?, AUTHORITIES.trim_start_matches('/'), 0o644);
        let licences = LICENCES.map(|package| format!("/usr/share/doc/{package}/copyright"));
        let others = OF_DISTRIBUTION.iter().copied().chain(licences.iter().map(String::as_str));
        for file in others.map(Path::new).filter(|file| file.exists()) {
            contents.copy(file, &place_of(file), 0o644);
        }
        Ok(contents)
    }

    fn copy(&mut self, from: &Path, to: &str, mode: u32) {
        self.add(to, Entry::File { from: from.to_path_buf(), mode });
    }

    /// Folders on the way to it come with it.
    fn add(&mut self, path: &str, entry: Entry) {
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Entry::Folder(0o755));
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// In the order of paths, in which a folder goes before what is in it.
    pub(super) fn append_to(&self, layer: &mut Layer) -> io::Result<()> {
        for (path, entry) in &self.0 {
            match entry {
                Entry::Folder(mode) => append_folder(layer, path, *mode)?,
                Entry::File { from, mode } => append(layer, path, *mode, &fs::read(from)?)?,
                Entry::Text(text) => append(layer, path, 0o644, text.as_bytes())?,
                Entry::Link(target) => append_link(layer, path, target)?,
            }
        }
        Ok(())
    }
}

fn authorities() -> Result<&'static Path, Error> {
    let mut places = [AUTHORITIES].into_iter().chain(AUTHORITIES_ELSEWHERE).map(Path::new);
    places.find(|file| file.exists()).ok_or(Error::NoAuthorities(AUTHORITIES))
}

/// The shared libraries and the loader that a program needs on this machine; none if it is static.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, Error> {
    program.metadata().map_err(Error::io("read", program))?;
    let mut libraries = match printed("ldd", Command::new("ldd").arg(program)) {
        Ok(listed) => linked(&listed)?,
        Err(Error::Image { output, .. }) if output.contains("not a dynamic executable") => Vec::new(),
        Err(error) => return Err(error),
    };
    let c_library = libraries.iter().find(|library| library.ends_with(C_LIBRARY));
    if let Some(folder) = c_library.and_then(|library| library.parent()).map(Path::to_path_buf) {
        let beside = OPENED_BY_NAME.iter().map(|name| folder.join(name));
        libraries.extend(beside.filter(|library| library.exists()));
    }
    Ok(libraries)
}

/// The paths in what `ldd` prints: `NAME => PATH (ADDRESS)`, and of the loader `PATH (ADDRESS)`.
fn linked(listed: &str) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for line in listed.lines().map(str::trim) {
        if line.ends_with("=> not found") {
            return Err(Error::Image { program: "ldd", output: line.to_owned() });
        }
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        if path.starts_with('/') {
            paths.push(path.split_once(" (").map_or(path, |(path, _)| path).into());
        }
    }
    Ok(paths)
}

/// The path in the image of a file of this machine: the same, and below `usr` what [`MERGED`] has there.
fn place_of(file: &Path) -> String {
    let parts: Vec<String> = file
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect();
    let is_merged = parts.first().is_some_and(|first| MERGED.iter().any(|(name, _)| name == first));
    let path = parts.join("/");
    if is_merged { format!("usr/{path}") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_is_linked_with_is_read_and_what_is_not_found_is_an_error() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let paths = linked(listed).unwrap();
        assert_eq!(
            paths,
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
        let places = paths.iter().map(|path| place_of(path));
        assert_eq!(
            places.collect::<Vec<_>>(),
            ["usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib64/ld-linux-x86-64.so.2"]
        );
        assert_eq!(place_of(Path::new("/usr/lib64/libc.so.6")), "usr/lib64/libc.so.6");
        let absent = linked("\tlibx.so.1 => not found\n").unwrap_err().to_string();
        assert!(absent.contains("libx.so.1"), "{absent}");
        assert!(linked("\tstatically linked\n").unwrap().is_empty());
    }
}
