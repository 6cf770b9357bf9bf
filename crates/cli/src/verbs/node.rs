//! A node's agent, until it is told to stop.

use std::process::ExitCode;
use std::time::Duration;

use phalanx_kube::agent::{self, AgentError, Hardware, PluginSettings, Settings};
use phalanx_kube::plugin::Injection;

use crate::args::{How, Node};
use crate::failure::Failure;

/// Between two looks at the kubelet.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Why it ends is the last line of its log.
pub(super) fn node(asked: Node) -> ExitCode {
    asked.log.begin();
    serve(asked).map_or_else(|failure| failure.log(), |()| ExitCode::SUCCESS)
}

fn serve(asked: Node) -> Result<(), Failure> {
    let plugin = asked.device_plugin.then_some(PluginSettings {
        kubelet: asked.kubelet,
        injection: match asked.injection {
            How::Environment => Injection::Environment,
            How::Cdi => Injection::Cdi,
        },
        look_every: LOOK_EVERY,
    });
    let settings = Settings {
        kubeconfig: asked.kubeconfig,
        context: asked.context,
        node: asked.node_name,
        hardware: asked.machine.map_or(Hardware::Host, Hardware::File),
        every: Duration::from_secs(asked.every),
        sample_every: Duration::from_secs(asked.sample_every),
        dcgm: asked.dcgm,
        kernel_log: Some(asked.kernel_log),
        plugin,
        listen: asked.listen,
    };
    match agent::run(&settings) {
        Ok(()) => Ok(()),
        Err(error @ (AgentError::Config(_) | AgentError::Hardware(_))) => {
            Err(Failure::usage(error.to_string(), ""))
        }
        Err(error) => Err(Failure::unavailable(error.to_string(), "start it again; what runs goes on")),
    }
}
