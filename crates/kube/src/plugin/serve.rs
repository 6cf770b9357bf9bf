//! The plugin's side of the protocol.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::prefer::{chosen, preferred};
use super::proto::plugin as wire;
use super::{Expectations, Expected};

/// How long a request waits for the pod that it is made for. The kubelet may know a pod some milliseconds before the watch of the
/// agent does. Pods of other schedulers never come, and start later by this time.
const LATE: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A device as the kubelet is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginDevice {
    /// As the vendor names it: `GPU-2fa81118-…`.
    pub uuid: String,
    pub is_healthy: bool,
    pub numa: Option<u32>,
}

/// How a container gets its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// `NVIDIA_VISIBLE_DEVICES`, for NVIDIA's container runtime.
    Environment,
    /// Names of the Container Device Interface, `nvidia.com/gpu=UUID`.
    Cdi,
}

pub(super) struct Service<E> {
    pub(super) devices: watch::Receiver<Vec<PluginDevice>>,
    pub(super) expectations: Arc<E>,
    pub(super) injection: Injection,
}

pub(super) fn options() -> wire::DevicePluginOptions {
    wire::DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true }
}

fn told(devices: &[PluginDevice]) -> wire::ListAndWatchResponse {
    let devices = devices.iter().map(|device| wire::Device {
        id: device.uuid.clone(),
        health: if device.is_healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
        topology: device
            .numa
            .map(|node| wire::TopologyInfo { nodes: vec![wire::NumaNode { id: node.into() }] }),
    });
    wire::ListAndWatchResponse { devices: devices.collect() }
}

impl<E: Expectations> Service<E> {
    /// The expected pods, once one of them may be the pod of a request.
    async fn expected_for(&self, asked: Option<&wire::ContainerPreferredAllocationRequest>) -> Vec<Expected> {
        let until = Instant::now() + LATE;
        loop {
            let expected = self.expectations.expected();
            let is_there = asked.is_none_or(|asked| {
                let count = usize::try_from(asked.allocation_size).unwrap_or_default();
                let (available, must) = (&asked.available_device_i_ds, &asked.must_include_device_i_ds);
                chosen(available, must, count, &expected).is_some()
            });
            if is_there || Instant::now() >= until {
                return expected;
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl<E: Expectations> wire::device_plugin_server::DevicePlugin for Service<E> {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<wire::ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(&self, _: Request<wire::Empty>) -> Answer<wire::DevicePluginOptions> {
        Ok(Response::new(options()))
    }

    async fn list_and_watch(&self, _: Request<wire::Empty>) -> Answer<Self::ListAndWatchStream> {
        let lists = WatchStream::new(self.devices.clone()).map(|devices| Ok(told(&devices)));
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<wire::PreferredAllocationRequest>,
    ) -> Answer<wire::PreferredAllocationResponse> {
        let requests = request.into_inner().container_requests;
        let expected = self.expected_for(requests.first()).await;
        let mut given: Vec<String> = Vec::new();
        let answers = requests.into_iter().map(|asked| {
            let count = usize::try_from(asked.allocation_size).unwrap_or_default();
            let available: Vec<String> =
                asked.available_device_i_ds.into_iter().filter(|device| !given.contains(device)).collect();
            let devices = preferred(&available, &asked.must_include_device_i_ds, count, &expected);
            given.extend(devices.iter().cloned());
            wire::ContainerPreferredAllocationResponse { device_i_ds: devices }
        });
        Ok(Response::new(wire::PreferredAllocationResponse { container_responses: answers.collect() }))
    }

    async fn allocate(&self, request: Request<wire::AllocateRequest>) -> Answer<wire::AllocateResponse> {
        let devices = self.devices.borrow().clone();
        let answers = request.into_inner().container_requests.into_iter().map(|asked| {
            for id in &asked.devices_ids {
                match devices.iter().find(|device| device.uuid == *id) {
                    None => return Err(Status::not_found(format!("there is no device {id} on this node"))),
                    Some(device) if !device.is_healthy => {
                        return Err(Status::failed_precondition(format!("the device {id} is not healthy")));
                    }
                    Some(_) => {}
                }
            }
            Ok(injected(&asked.devices_ids, self.injection))
        });
        let answers = answers.collect::<Result<_, _>>()?;
        Ok(Response::new(wire::AllocateResponse { container_responses: answers }))
    }

    async fn pre_start_container(
        &self,
        _: Request<wire::PreStartContainerRequest>,
    ) -> Answer<wire::PreStartContainerResponse> {
        Ok(Response::new(wire::PreStartContainerResponse {}))
    }
}

fn injected(devices: &[String], injection: Injection) -> wire::ContainerAllocateResponse {
    let mut answer = wire::ContainerAllocateResponse::default();
    match injection {
        Injection::Environment => {
            answer.envs = HashMap::from([("NVIDIA_VISIBLE_DEVICES".to_owned(), devices.join(","))]);
        }
        Injection::Cdi => {
            let name = |device: &String| wire::CdiDevice { name: format!("{}={device}", super::RESOURCE) };
            answer.cdi_devices = devices.iter().map(name).collect();
        }
    }
    answer
}
