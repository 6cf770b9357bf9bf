//! The process that a node's namespaces belong to.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::Error;
use crate::process::{Keeper, Process};

const SETTLES_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The first process of a node: prepares its mounts and its network, then waits for ever and for orphans.
/// `$0` is the folder of the node.
const FIRST: &str = r#"
set -e
mkdir -p /var/lib/kubelet "$0/kubelet"
mount --bind "$0/kubelet" /var/lib/kubelet
mount --make-shared /var/lib/kubelet
for own in /run/containerd /run/netns /var/lib/cni /var/log/containers; do
  mkdir -p "$own"
  mount -t tmpfs none "$own"
done
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
: > "$0/settled"
while :; do sleep 1000; done
"#;

/// Mounts, network and process numbers of their own, which end with this value.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// `unshare`, whose end the kernel makes the end of the first process, and that the end of all.
    outside: Child,
    first: u32,
}

impl Namespaces {
    /// Those of a node, whose folder is there.
    pub(crate) fn start(folder: &Path, keeper: &mut Keeper) -> Result<Self, Error> {
        Self::of(folder, FIRST, keeper)
    }

    /// With a first process of one's choice, which writes `settled` in the folder.
    pub(crate) fn of(folder: &Path, first: &str, keeper: &mut Keeper) -> Result<Self, Error> {
        let log = folder.join("first.log");
        let open = || File::options().create(true).append(true).open(&log).map_err(Error::io("open", &log));
        let program = Path::new("/usr/bin/unshare");
        let mut unshare = Command::new(program);
        unshare.args(["--pid", "--fork", "--kill-child", "--mount", "--net", "--mount-proc"]);
        unshare.args(["--propagation", "private", "--", "/bin/sh", "-c", first]).arg(folder);
        unshare.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        let outside = unshare.spawn().map_err(Error::io("run", program))?;
        let mut namespaces = Self { outside, first: 0 };
        keeper.keep(namespaces.outside.id(), program)?;
        let began = Instant::now();
        while !folder.join("settled").exists() {
            let has_ended = !matches!(namespaces.outside.try_wait(), Ok(None));
            if has_ended || began.elapsed() > SETTLES_WITHIN {
                let why = fs::read_to_string(&log).unwrap_or_default();
                return Err(Error::Node { node: folder.display().to_string(), why });
            }
            std::thread::sleep(LOOK_EVERY);
        }
        namespaces.first = child_of(namespaces.outside.id()).unwrap_or_default();
        Ok(namespaces)
    }

    /// The number of the first process, as seen from outside.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// A file that stands for the network namespace.
    pub(crate) fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.first))
    }

    /// `command` inside, which goes on by itself.
    pub(crate) fn run(
        &self,
        name: &'static str,
        command: &Command,
        log: PathBuf,
        keeper: &mut Keeper,
    ) -> Result<Process, Error> {
        let mut inside = Command::new("/usr/bin/nsenter");
        inside.args(["--target", &self.first.to_string(), "--mount", "--net", "--pid", "--"]);
        inside.arg(command.get_program()).args(command.get_args());
        Process::start(name, inside, log, keeper)
    }

    /// `ip` or `tc` in the network namespace, waited for.
    pub(crate) fn network_tool(&self, program: &str, arguments: &[&str]) -> Result<(), Error> {
        let mut inside = Command::new("/usr/bin/nsenter");
        inside.args(["--target", &self.first.to_string(), "--net", "--", program]).args(arguments);
        let done = inside.output().map_err(Error::io("run", Path::new("nsenter")))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let why = format!("{program} {} said: {said}", arguments.join(" "));
        Err(Error::Node { node: format!("process {}", self.first), why })
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // Both fail only where it is gone already.
        let _ = self.outside.kill();
        let _ = self.outside.wait();
        // What runs inside ends after that, and holds mounts and cgroups until it has.
        let began = Instant::now();
        while Path::new(&format!("/proc/{}", self.first)).exists() && began.elapsed() < SETTLES_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Kills what `nsenter` runs, with which that ends too.
pub(crate) fn end_inside(process: &Process) {
    if let Some(inside) = child_of(process.pid()).and_then(|pid| i32::try_from(pid).ok()) {
        // It fails only where it is gone already.
        let _ = kill(Pid::from_raw(inside), Signal::SIGKILL);
    }
}

/// The only child of a process.
fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}
