//! Who binds: the schedulers that are compared, and the bare binder.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use phalanx_controlplane::{ControlPlane, Program};

use super::bare;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Runner {
    Bare,
    KubeScheduler,
    Phalanx,
}

impl Runner {
    pub(super) const ALL: [Self; 3] = [Self::Bare, Self::KubeScheduler, Self::Phalanx];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::KubeScheduler => "kube-scheduler",
            Self::Phalanx => "phalanx",
        }
    }

    /// The `schedulerName` of its pods.
    pub(super) fn scheduler(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::KubeScheduler => "default-scheduler",
            Self::Phalanx => "phalanx",
        }
    }

    /// Starts it beside the API server; it may begin to bind before this returns.
    pub(super) fn start(self, plane: &mut ControlPlane, phalanx: &Path) -> Result<Running, String> {
        let kubeconfig = plane.kubeconfig();
        let command = match self {
            Self::Bare => {
                let this = std::env::current_exe().map_err(|e| format!("this executable: {e}"))?;
                let mut command = Command::new(this);
                command.args(["kube", bare::VERB]).arg(kubeconfig);
                command
            }
            Self::Phalanx => {
                let mut command = Command::new(phalanx);
                // kube-scheduler preempts at once as well.
                command.args(["scheduler", "--min-run", "0", "--kubeconfig"]).arg(kubeconfig);
                command
            }
            Self::KubeScheduler => {
                plane.run(Program::KubeScheduler).map_err(|e| e.to_string())?;
                let pid = plane.pid(Program::KubeScheduler).ok_or("kube-scheduler has no process")?;
                return Ok(Running { pid, own: None });
            }
        };
        spawn(plane, command)
    }
}

/// A scheduler at work; one of ours is killed with the value, the others with the control plane.
pub(super) struct Running {
    pub(super) pid: u32,
    own: Option<Child>,
}

impl Running {
    /// # Errors
    /// When one of ours has ended.
    pub(super) fn check(&mut self, plane: &ControlPlane) -> Result<(), String> {
        let Some(own) = &mut self.own else { return Ok(()) };
        let Ok(Some(status)) = own.try_wait() else { return Ok(()) };
        let log = std::fs::read_to_string(plane.folder().join(LOG)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        Err(format!("it ended with {status}: {}", lines[lines.len().saturating_sub(10)..].join("\n")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            // Both fail only where it has ended already.
            let _ = own.kill();
            let _ = own.wait();
        }
    }
}

const LOG: &str = "own.log";

fn spawn(plane: &mut ControlPlane, mut command: Command) -> Result<Running, String> {
    let path = plane.folder().join(LOG);
    let log = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let too = log.try_clone().map_err(|e| format!("{}: {e}", path.display()))?;
    command.stdin(Stdio::piped()).stdout(log).stderr(too);
    let program = command.get_program().to_owned();
    let child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
    let running = Running { pid: child.id(), own: Some(child) };
    plane.keep(running.pid, program.as_ref()).map_err(|e| e.to_string())?;
    Ok(running)
}
