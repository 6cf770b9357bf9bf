//! Images as archives, made of what this machine has: no daemon, no registry and no root is needed.
//!
//! | module | what lives there |
//! |---|---|
//! | `archive` | how an archive is written: an OCI image layout that `docker load` reads too |
//! | `release` | the image of `phalanx` itself |
//! | `packages` | the contents of images of Debian packages |

mod archive;
mod packages;
mod release;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;

use crate::error::Error;
use crate::node::BUSYBOX;

use archive::{About, Layer, append, append_folder, append_link};

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
pub(crate) const PAUSE: &str = "docker.io/phalanx/pause:1";

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
/// Who is who in an image of packages; the second is whom sshd is while nobody has logged in.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";
/// Nobody logs in with a password.
const SHADOW: &str = "root:*:20000:0:99999:7:::\nsshd:!:20000::::::\n";
const NAME_SERVICE: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n";
/// The name of the image of this version of `phalanx`, as the manifests and the chart mean it.
pub const RELEASE: &str = concat!("docker.io/library/phalanx:", env!("CARGO_PKG_VERSION"));

/// An image that can be imported.
#[derive(Clone, Debug)]
pub struct Image {
    about: About,
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
    /// The program `phalanx`.
    Release(PathBuf),
}

/// What of this machine a layer is made of.
enum Sources {
    Busybox,
    Packages(BTreeSet<PathBuf>),
    Release(release::Contents),
}

impl Image {
    pub(crate) fn pause() -> Self {
        Self::of(PAUSE, &["/bin/sleep", "inf"], Contents::Busybox)
    }

    pub(crate) fn busybox() -> Self {
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

    /// A program `phalanx` that was built on this machine, with the shared libraries that it is linked with and the certificates of
    /// authorities. It runs as user 65532, as the scheduler if the pod says nothing else.
    ///
    /// # Errors
    /// When the name lacks its registry or its tag: [`RELEASE`] is a whole one.
    pub fn of_release(name: &str, program: &Path) -> Result<Self, Error> {
        check_name(name)?;
        let entry_point = format!("/{}", release::PROGRAM);
        let mut image = Self::of(name, &[&entry_point], Contents::Release(program.to_path_buf()));
        image.about.arguments = vec!["scheduler".to_owned()];
        image.about.user = Some(release::USER.to_owned());
        Ok(image)
    }

    /// With registry and tag.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// The program that it starts, and the arguments of that if a pod names none.
    #[must_use]
    pub fn starts(&self) -> (&[String], &[String]) {
        (&self.about.entry_point, &self.about.arguments)
    }

    /// `UID:GID`; nothing for root.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.about.user.as_deref()
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
        let about = About { name: name.to_owned(), entry_point, arguments: Vec::new(), user: None };
        Self { about, contents, files: Vec::new(), texts: Vec::new() }
    }

    /// Writes it as an archive of one layer, and says the digest of its manifest, under which a registry has it. The layer lies beside
    /// the archive meanwhile.
    ///
    /// # Errors
    /// When something that it consists of is not there, or the archive cannot be written.
    pub fn write(&self, to: &Path) -> Result<String, Error> {
        // Images of tests stay on this machine.
        let (sources, compression) = match &self.contents {
            Contents::Busybox => (Sources::Busybox, Compression::none()),
            Contents::Packages(packages) => {
                (Sources::Packages(packages::files_of(packages)?), Compression::none())
            }
            Contents::Release(program) => {
                (Sources::Release(release::Contents::of(program)?), Compression::default())
            }
        };
        let fill = |layer: &mut Layer| -> io::Result<()> {
            match &sources {
                Sources::Busybox => append_busybox(layer)?,
                Sources::Packages(paths) => packages::append_packages(layer, paths)?,
                Sources::Release(contents) => contents.append_to(layer)?,
            }
            for (from, to) in &self.files {
                layer.append_path_with_name(from, to)?;
            }
            self.texts.iter().try_for_each(|(to, text)| append(layer, to, 0o644, text.as_bytes()))
        };
        archive::write(to, &self.about, compression, fill).map_err(Error::io("write", to))
    }
}

/// Names without a registry mean different images to different programs.
fn check_name(name: &str) -> Result<(), Error> {
    let parts = name.split_once('/').and_then(|(registry, rest)| {
        let (repository, tag) = rest.rsplit_once(':')?;
        Some((registry, repository, tag))
    });
    let is_whole = parts.is_some_and(|(registry, repository, tag)| {
        let is_registry = registry == "localhost" || registry.contains(['.', ':']);
        let is_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c);
        let is_tag = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let has = |text: &str, is: &dyn Fn(char) -> bool| !text.is_empty() && text.chars().all(is);
        is_registry && has(repository, &is_path) && has(tag, &is_tag)
    });
    if is_whole { Ok(()) } else { Err(Error::ImageName(name.to_owned())) }
}

fn append_busybox(layer: &mut Layer) -> io::Result<()> {
    for folder in ["bin", "tmp", "proc", "sys", "dev", "etc"] {
        append_folder(layer, folder, 0o755)?;
    }
    append(layer, "bin/busybox", 0o755, &fs::read(BUSYBOX)?)?;
    APPLETS.iter().try_for_each(|name| append_link(layer, &format!("bin/{name}"), "busybox"))
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

#[cfg(test)]
mod tests;
