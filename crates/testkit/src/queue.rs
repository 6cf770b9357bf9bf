//! Builders of queues. Names that are not names panic.

use phalanx_model::{Amounts, Input, Pool, Pools, Queue, QueueName, QueueOrder, Resource};

/// A queue at the top of the tree, without limits.
#[must_use]
pub fn queue(name: &str) -> QueueBuilder {
    QueueBuilder(Queue::named(QueueName::new(name).unwrap()))
}

/// Amounts: devices and cores in whole units, memory in bytes, named resources in the units of the cluster.
#[derive(Clone, Debug)]
pub struct QueueBuilder(Queue);

impl QueueBuilder {
    #[must_use]
    pub fn parent(mut self, name: &str) -> Self {
        self.0.parent = Some(QueueName::new(name).unwrap());
        self
    }

    #[must_use]
    pub fn guaranteed(mut self, resource: &str, amount: u64) -> Self {
        put(&mut self.0.guaranteed, resource, amount);
        self
    }

    #[must_use]
    pub fn limit(mut self, resource: &str, amount: u64) -> Self {
        put(&mut self.0.limit, resource, amount);
        self
    }

    /// The largest part of the guarantee that other queues may borrow.
    #[must_use]
    pub fn lend(mut self, resource: &str, amount: u64) -> Self {
        put(&mut self.0.lend_max, resource, amount);
        self
    }

    #[must_use]
    pub fn weight_milli(mut self, weight_milli: u64) -> Self {
        self.0.weight_milli = weight_milli;
        self
    }

    /// The queue is restricted to these pools, in order of preference.
    #[must_use]
    pub fn pools(mut self, pools: Vec<Pool>) -> Self {
        self.0.nodes = Pools { pools, or_any: false };
        self
    }

    #[must_use]
    pub fn running_max(mut self, gangs: u32) -> Self {
        self.0.caps.running_max = Some(gangs);
        self
    }

    #[must_use]
    pub fn pending_max(mut self, gangs: u32) -> Self {
        self.0.caps.pending_max = Some(gangs);
        self
    }

    #[must_use]
    pub fn gang_devices_max(mut self, devices: u32) -> Self {
        self.0.caps.gang_devices_max = Some(devices);
        self
    }

    #[must_use]
    pub fn time_limit_max(mut self, ms: u64) -> Self {
        self.0.caps.time_limit_max_ms = Some(ms);
        self
    }

    /// The queue orders by attained service, with thresholds in milliseconds of one device.
    #[must_use]
    pub fn least_served(mut self, levels: &[u64]) -> Self {
        self.0.order = Some(QueueOrder::LeastServed { levels: levels.to_vec() });
        self
    }

    #[must_use]
    pub fn build(self) -> Queue {
        self.0
    }

    /// The fact that the queue was observed.
    #[must_use]
    pub fn observed(self) -> Input {
        Input::QueueObserved { queue: Box::new(self.0) }
    }
}

fn put(amounts: &mut Amounts, resource: &str, amount: u64) {
    let resource: Resource = resource.parse().unwrap();
    let unit = match resource {
        Resource::Gpus | Resource::Model(_) | Resource::Cpus => 1_000,
        Resource::Memory | Resource::Named(_) => 1,
    };
    amounts.insert(resource, amount * unit);
}
