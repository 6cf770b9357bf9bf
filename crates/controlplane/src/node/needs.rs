//! What real nodes need of the machine.

use std::path::{Path, PathBuf};

/// Where Debian has the plugins for the network of containers.
pub(super) const NETWORK_PLUGINS: &str = "/usr/lib/cni";
/// The program of the image, without libraries.
pub(crate) const BUSYBOX: &str = "/bin/busybox";

/// Of Debian; no user has it in their path.
const SSH_SERVER: &str = "/usr/sbin/sshd";

/// Programs and the Debian packages that they are in.
const PROGRAMS: [(&str, &str); 7] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("mount", "mount"),
];

/// What is missing for [`crate::Options::real_nodes`], each with what to do; nothing where they can run.
#[must_use]
pub fn missing_for_nodes() -> Vec<String> {
    let mut missing = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        missing.push("real nodes mount and make namespaces: run as root".to_owned());
    }
    let absent = PROGRAMS.iter().filter(|(program, _)| in_path(program).is_none());
    let packages = absent.map(|(_, package)| *package);
    let plugins = (!Path::new(NETWORK_PLUGINS).join("ptp").exists()).then_some("containernetworking-plugins");
    let busybox = (!Path::new(BUSYBOX).exists()).then_some("busybox-static");
    let mut packages: Vec<&str> = packages.chain(plugins).chain(busybox).collect();
    packages.dedup();
    if !packages.is_empty() {
        missing.push(format!("install with: apt-get install {}", packages.join(" ")));
    }
    missing
}

/// What is missing for [`Image::open_mpi`](crate::Image::open_mpi), with what to do; nothing where it can be put together.
#[must_use]
pub fn missing_for_open_mpi() -> Option<String> {
    // The programs that the packages are there for.
    let programs = [("mpirun", "openmpi-bin"), ("ssh", "openssh-client")].into_iter();
    let absent = programs.filter(|(program, _)| in_path(program).is_none()).map(|(_, package)| package);
    let server = (!Path::new(SSH_SERVER).exists()).then_some("openssh-server");
    let packages: Vec<&str> = absent.chain(server).collect();
    (!packages.is_empty()).then(|| format!("install with: apt-get install {}", packages.join(" ")))
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.exists())
}
