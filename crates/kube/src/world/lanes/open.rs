//! Bindings that have no answer yet, by the UID of their pod.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::messages::PodRef;

/// Whether each was called off.
type ByPod = HashMap<Arc<str>, watch::Sender<bool>>;

#[derive(Clone, Default)]
pub(super) struct Open(Arc<Mutex<ByPod>>);

/// One of them. When it is dropped the binding has its answer.
pub(super) struct Opened {
    uid: Arc<str>,
    open: Open,
    is_off: watch::Receiver<bool>,
}

impl Open {
    /// Begins one. What there is of its pod already is called off, and has to end first.
    pub(super) fn begin(&self, pod: &PodRef) -> (Opened, Option<watch::Sender<bool>>) {
        let (sender, is_off) = watch::channel(false);
        let before = self.lock().insert(Arc::clone(&pod.uid), sender);
        if let Some(before) = &before {
            before.send_replace(true);
        }
        (Opened { uid: Arc::clone(&pod.uid), open: self.clone(), is_off }, before)
    }

    /// What is open of these pods does not begin, or goes no further than the request that is on its way.
    pub(super) fn call_off(&self, pods: &[PodRef]) {
        let open = self.lock();
        for binding in pods.iter().filter_map(|pod| open.get(&pod.uid)) {
            binding.send_replace(true);
        }
    }

    /// Calls off what is open of a pod, and waits for its end.
    pub(super) async fn has_ended(&self, pod: &PodRef) {
        self.call_off(std::slice::from_ref(pod));
        let open = self.lock().get(&pod.uid).cloned();
        if let Some(open) = open {
            open.closed().await;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, ByPod> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    pub(super) fn off(&self) -> watch::Receiver<bool> {
        self.is_off.clone()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        // A later one of the same pod has an entry of its own.
        if open.get(&self.uid).is_some_and(|sender| self.is_off.same_channel(&sender.subscribe())) {
            open.remove(&self.uid);
        }
    }
}
