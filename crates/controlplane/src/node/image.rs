//! Images as `docker save` writes them, made of what this machine has: no registry is reached.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::error::Error;

use super::needs::BUSYBOX;

/// The image that pods of tests name: a shell and what belongs to it. With `imagePullPolicy: Never`.
pub const IMAGE: &str = "docker.io/phalanx/busybox:1";
/// An image with Open MPI and an SSH server, see [`Image::open_mpi`].
pub const OPEN_MPI: &str = "docker.io/phalanx/open-mpi:1";
/// What it consists of.
const OPEN_MPI_PACKAGES: [&str; 3] = ["openmpi-bin", "openssh-client", "openssh-server"];
/// For ranks in pods of a small machine: they talk over the network of pods, nobody is bound to a core, and who waits lets
/// others run.
pub const OPEN_MPI_SETTINGS: [(&str, &str); 8] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_btl", "tcp,self"),
    ("OMPI_MCA_btl_tcp_if_include", "eth0"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("OMPI_MCA_oob_tcp_if_include", "eth0"),
    ("OMPI_MCA_pml", "ob1"),
];
/// Root logs in with a key.
const SSHD: &str = "PermitRootLogin prohibit-password\nUsePAM no\n";
/// What holds the namespaces of a pod.
pub(super) const PAUSE: &str = "docker.io/phalanx/pause:1";

/// The names under which the shell finds what it runs.
const APPLETS: [&str; 16] = [
    "sh", "sleep", "env", "cat", "echo", "true", "false", "kill", "wget", "nc", "mkdir", "ls", "touch",
    "test", "date", "seq",
];

/// What every image of packages has: a shell and its tools.
const BASE: [&str; 3] = ["bash", "coreutils", "dash"];
/// As Debian 12 joins them.
const MERGED: [(&str, &str); 4] =
    [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/sbin")];
/// What nobody reads in a container.
const PASSED_OVER: [&str; 6] = [
    "/usr/share/bash-completion/",
    "/usr/share/doc/",
    "/usr/share/info/",
    "/usr/share/lintian/",
    "/usr/share/locale/",
    "/usr/share/man/",
];
/// Who is who in an image of packages; the second is whom sshd is while nobody has logged in.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";
/// Nobody logs in with a password.
const SHADOW: &str = "root:*:20000:0:99999:7:::\nsshd:!:20000::::::\n";
const NAME_SERVICE: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n";
/// What is read of a layer at a time, in bytes.
const BLOCK: usize = 1 << 16;

/// An image that can be imported.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    entry_point: Vec<String>,
    contents: Contents,
    /// Beside these: from where, to where.
    files: Vec<(PathBuf, String)>,
    /// The same, by what they say.
    texts: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
enum Contents {
    Busybox,
    /// Of Debian, which are installed here.
    Packages(Vec<String>),
}

impl Image {
    pub(super) fn pause() -> Self {
        Self::of(PAUSE, &["/bin/sleep", "inf"], Contents::Busybox)
    }

    pub(super) fn busybox() -> Self {
        Self::of(IMAGE, &["/bin/sh"], Contents::Busybox)
    }

    /// Debian packages that are installed on this machine, with all that they depend on, a shell and the users `root` and
    /// `sshd`. Their files are taken as they are here; no script of theirs is run.
    ///
    /// The name has its registry: `docker.io/NAME/NAME:TAG`.
    #[must_use]
    pub fn of_packages(name: &str, packages: &[&str]) -> Self {
        let packages = BASE.iter().chain(packages).map(|&name| name.to_owned()).collect();
        let image = Self::of(name, &["/bin/sh"], Contents::Packages(packages));
        [("passwd", PASSWD), ("group", GROUP), ("shadow", SHADOW), ("nsswitch.conf", NAME_SERVICE)]
            .into_iter()
            .fold(image, |image, (file, text)| image.with_text(&format!("etc/{file}"), text))
    }

    /// Open MPI, and the server by which its launcher reaches other pods; [`crate::missing_for_open_mpi`] says what it needs.
    #[must_use]
    pub fn open_mpi() -> Self {
        Self::of_packages(OPEN_MPI, &OPEN_MPI_PACKAGES).with_text("etc/ssh/sshd_config", SSHD)
    }

    /// A program or another file of this machine; `to` is its path without the first `/`.
    #[must_use]
    pub fn with_file(mut self, from: &Path, to: &str) -> Self {
        self.files.push((from.to_path_buf(), to.to_owned()));
        self
    }

    /// A file with this text; `to` is its path without the first `/`.
    #[must_use]
    pub fn with_text(mut self, to: &str, text: &str) -> Self {
        self.texts.push((to.to_owned(), text.to_owned()));
        self
    }

    fn of(name: &str, entry_point: &[&str], contents: Contents) -> Self {
        let entry_point = entry_point.iter().map(|&word| word.to_owned()).collect();
        Self { name: name.to_owned(), entry_point, contents, files: Vec::new(), texts: Vec::new() }
    }

    /// Writes it as an archive of one layer; the layer lies beside it meanwhile.
    pub(super) fn write(&self, to: &Path) -> Result<(), Error> {
        let layer = to.with_extension("layer");
        let done = self.write_layer(&layer).and_then(|()| self.write_archive(&layer, to));
        // It may never have been there.
        let _ = fs::remove_file(&layer);
        done
    }

    fn write_archive(&self, layer: &Path, to: &Path) -> Result<(), Error> {
        let digest = digest_of(layer).map_err(Error::io("read", layer))?;
        let configuration = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": {
                "Entrypoint": self.entry_point,
                "Env": ["PATH=/usr/local/bin:/bin:/usr/bin:/usr/sbin"],
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
            "history": [],
        });
        let manifest = json!([{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]);
        let write = || -> io::Result<()> {
            let mut archive = tar::Builder::new(File::create(to)?);
            append(&mut archive, "config.json", configuration.to_string().as_bytes())?;
            archive.append_path_with_name(layer, "layer.tar")?;
            append(&mut archive, "manifest.json", manifest.to_string().as_bytes())?;
            archive.into_inner().map(drop)
        };
        write().map_err(Error::io("write", to))
    }

    fn write_layer(&self, to: &Path) -> Result<(), Error> {
        let paths = match &self.contents {
            Contents::Busybox => None,
            Contents::Packages(packages) => Some(files_of(packages)?),
        };
        let write = || -> io::Result<()> {
            let mut layer = tar::Builder::new(File::create(to)?);
            layer.follow_symlinks(false);
            match &paths {
                None => append_busybox(&mut layer)?,
                Some(paths) => append_packages(&mut layer, paths)?,
            }
            for (from, to) in &self.files {
                layer.append_path_with_name(from, to)?;
            }
            for (to, text) in &self.texts {
                append(&mut layer, to, text.as_bytes())?;
            }
            layer.into_inner().map(drop)
        };
        write().map_err(Error::io("write", to))
    }
}

fn append_busybox(layer: &mut tar::Builder<File>) -> io::Result<()> {
    for folder in ["bin", "tmp", "proc", "sys", "dev", "etc"] {
        append_folder(layer, folder)?;
    }
    append(layer, "bin/busybox", &fs::read(BUSYBOX)?)?;
    APPLETS.iter().try_for_each(|name| append_link(layer, &format!("bin/{name}"), "busybox"))
}

fn append_packages(layer: &mut tar::Builder<File>, paths: &BTreeSet<PathBuf>) -> io::Result<()> {
    for folder in ["usr", "tmp", "proc", "sys", "dev", "etc", "root", "run", "var"] {
        append_folder(layer, folder)?;
    }
    for (name, target) in MERGED {
        append_folder(layer, target)?;
        append_link(layer, name, target)?;
    }
    for path in paths {
        layer.append_path_with_name(path, path.strip_prefix("/").unwrap_or(path))?;
    }
    // Debian chooses between programs of one name by links that belong to no package.
    for folder in ["/usr/bin", "/usr/sbin"] {
        for entry in fs::read_dir(folder)? {
            let link = entry?.path();
            let is_choice = link.read_link().is_ok_and(|target| target.starts_with("/etc/alternatives"));
            if let Some(chosen) = link.canonicalize().ok().filter(|file| is_choice && paths.contains(file)) {
                let name = link.strip_prefix("/").unwrap_or(&link).display().to_string();
                append_link(layer, &name, &chosen.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// The files and links of packages and of all that they depend on, each by its one path.
fn files_of(packages: &[String]) -> Result<BTreeSet<PathBuf>, Error> {
    let mut depends = Command::new("apt-cache");
    depends.args([
        "depends",
        "--recurse",
        "--installed",
        "--no-recommends",
        "--no-suggests",
        "--no-enhances",
    ]);
    depends.args(["--no-conflicts", "--no-breaks", "--no-replaces"]).args(packages);
    let listed = printed("apt-cache", &mut depends)?;
    // A package begins its line; what it depends on is indented, and a name that several provide is in `<>`. One of several that would do is named although it is not there.
    let format = "--showformat=${Package} ${db:Status-Status}\n";
    let known = printed("dpkg-query", Command::new("dpkg-query").args(["--show", format]))?;
    let installed: BTreeSet<&str> =
        known.lines().filter_map(|line| line.strip_suffix(" installed")).collect();
    let all: BTreeSet<&str> = listed.lines().filter(|line| installed.contains(line)).collect();
    if let Some(absent) = packages.iter().find(|package| !all.contains(package.as_str())) {
        return Err(Error::Image { program: "dpkg-query", output: format!("{absent} is not installed") });
    }
    let files = printed("dpkg-query", Command::new("dpkg-query").arg("--listfiles").args(&all))?;
    let mut paths = BTreeSet::new();
    for line in files.lines().filter(|line| line.starts_with('/')) {
        let path = Path::new(line);
        let is_there = path.symlink_metadata().is_ok_and(|file| !file.is_dir());
        if !is_there || PASSED_OVER.iter().any(|folder| line.starts_with(folder)) {
            continue;
        }
        // `/lib/x` is `/usr/lib/x`.
        if let (Some(folder), Some(name)) =
            (path.parent().and_then(|at| at.canonicalize().ok()), path.file_name())
        {
            paths.insert(folder.join(name));
        }
    }
    Ok(paths)
}

/// What a program prints that has to succeed.
fn printed(program: &'static str, command: &mut Command) -> Result<String, Error> {
    let done = command.output().map_err(Error::io("run", Path::new(program)))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let output = crate::build::last_lines(&String::from_utf8_lossy(&done.stderr), 5);
    Err(Error::Image { program, output })
}

fn digest_of(file: &Path) -> io::Result<String> {
    let (mut file, mut block) = (File::open(file)?, vec![0; BLOCK]);
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    loop {
        match file.read(&mut block)? {
            0 => break,
            read => context.update(block.get(..read).unwrap_or_default()),
        }
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn header(bytes: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes as u64);
    header.set_mode(0o755);
    header.set_mtime(0);
    header
}

fn append_folder(archive: &mut tar::Builder<File>, path: &str) -> io::Result<()> {
    let mut header = header(0);
    header.set_entry_type(tar::EntryType::Directory);
    archive.append_data(&mut header, path, io::empty())
}

fn append_link(archive: &mut tar::Builder<File>, path: &str, target: &str) -> io::Result<()> {
    let mut header = header(0);
    header.set_entry_type(tar::EntryType::Symlink);
    archive.append_link(&mut header, path, target)
}

fn append(archive: &mut tar::Builder<File>, path: &str, bytes: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(bytes.len()), path, bytes)
}
