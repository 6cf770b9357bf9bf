//! What the library answered, call by call, and the text it is recorded in.
//!
//! A description is lines of a key and blank-separated fields; `#` begins a comment. A field `!N` says that the
//! call failed with error N of nvml.h. What the library does not support is left out. The keys:
//!
//! ```text
//! driver VERSION
//! lacks SYMBOL SYMBOL ..                      what this driver is too old for
//! gpuN at ADDRESS                             its handle, and where it is
//! gpuN name|uuid TEXT
//! gpuN memory BYTES
//! gpuN nodes HEX                              mask of the nearest NUMA nodes
//! gpuN power STATE                            0 fastest .. 15, 32 unknown
//! gpuN pcie GENERATION OF LANES OF            now, and at most
//! gpuN mig MODE
//! gpuN fabric VERSION STATE STATUS CLIQUE HEALTH SUMMARY UUID
//! gpuN linkL STATE REMOTE_TYPE VERSION MB_PER_S ADDRESS
//! gpuN sliceS GPU_INSTANCE COMPUTE_INSTANCE PROFILE START SIZE MIB UUID NAME
//! gpuA-gpuB LEVEL READ WRITE NVLINK           common ancestor on PCIe; peer access
//! ```
//!
//! What changes while devices work is not recorded. The fake library of the tests answers it from these lines, any of
//! which a description may leave out:
//!
//! ```text
//! init N                                      the driver is not loaded: every call fails with error N
//! gpuN lost [N]                               the device is lost: error N, or else 15
//! gpuN vitals NAME=VALUE NAME=VALUE ..        values of nvml/ask/vitals.rs:
//!     busy=PERCENT memory=BYTES temperature=C power=MW energy=MJ sm=MHZ throttle=MASK
//!     ecc=CORRECTED,UNCORRECTED rows=CORRECTABLE,UNCORRECTABLE,PENDING,FAILED retirement=0|1 replays=COUNT
//! gpuN errorsL REPLAYS RECOVERIES CRC         errors of NVLink L, whose state is in the line gpuN linkL
//! ```

use std::fmt::{self, Display, Write as _};

/// `NVML_ERROR_NOT_SUPPORTED` of nvml.h.
pub(super) const NOT_SUPPORTED: u32 = 3;
/// `NVML_ERROR_FUNCTION_NOT_FOUND` of nvml.h; also for a symbol that the library does not have.
pub(super) const FUNCTION_NOT_FOUND: u32 = 13;

/// What a call answered, or the number of its error in nvml.h.
pub(super) type Answer<T> = Result<T, u32>;

/// Everything that was asked.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) driver: Answer<String>,
    /// Sorted names of functions that the library does not have.
    pub(super) lacks: Vec<&'static str>,
    /// Devices that there are; `gpus` has at most as many as can be kept.
    pub(super) count: u32,
    pub(super) gpus: Vec<Answer<Gpu>>,
    /// By index, `a < b`, both of them answering.
    pub(super) pairs: Vec<Pair>,
}

#[derive(Debug)]
pub(super) struct Gpu {
    /// As the library writes it: `00000000:3B:00.0`.
    pub(super) address: String,
    pub(super) name: Answer<String>,
    pub(super) uuid: Answer<String>,
    pub(super) memory_bytes: Answer<u64>,
    /// NUMA nodes near the device, bit i for node i.
    pub(super) numa_nodes: Answer<u64>,
    /// `nvmlPstates_t`.
    pub(super) power_state: Answer<u32>,
    pub(super) pcie: Pcie,
    /// `NVML_DEVICE_MIG_ENABLE` is 1.
    pub(super) mig: Answer<u32>,
    /// MIG devices with the number they are asked for by.
    pub(super) slices: Vec<(u32, Slice)>,
    pub(super) fabric: Answer<Fabric>,
    /// Links with their numbers; those that are not supported are left out.
    pub(super) links: Vec<(u32, NvLink)>,
}

#[derive(Debug)]
pub(super) struct Pcie {
    pub(super) generation: Answer<u32>,
    pub(super) generation_max: Answer<u32>,
    pub(super) lanes: Answer<u32>,
    pub(super) lanes_max: Answer<u32>,
}

#[derive(Debug)]
pub(super) struct Slice {
    pub(super) gpu_instance: Answer<u32>,
    pub(super) compute_instance: Answer<u32>,
    /// Profile id of the GPU instance, first memory slice, count of memory slices. Users without privileges
    /// are not told.
    pub(super) place: Answer<(u32, u32, u32)>,
    pub(super) memory_mib: Answer<u64>,
    pub(super) uuid: Answer<String>,
    pub(super) name: Answer<String>,
}

#[derive(Debug)]
pub(super) struct Fabric {
    /// Of the structure that the library knows: 1, 2 or 3.
    pub(super) version: u32,
    /// `NVML_GPU_FABRIC_STATE_*`.
    pub(super) state: u32,
    /// An error of nvml.h, once the state is completed.
    pub(super) status: u32,
    pub(super) clique: u32,
    /// `NVML_GPU_FABRIC_HEALTH_MASK_*`; 0 before version 2.
    pub(super) health: u32,
    /// `NVML_GPU_FABRIC_HEALTH_SUMMARY_*`; 0 before version 3.
    pub(super) summary: u32,
    pub(super) uuid: [u8; 16],
}

#[derive(Debug)]
pub(super) struct NvLink {
    pub(super) is_active: Answer<u32>,
    /// `nvmlIntNvLinkDeviceType_t`.
    pub(super) remote_type: Answer<u32>,
    /// `nvmlNvlinkVersion_t`.
    pub(super) version: Answer<u32>,
    /// One way.
    pub(super) mb_per_s: Answer<u32>,
    pub(super) address: Answer<String>,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) a: u32,
    pub(super) b: u32,
    /// `nvmlGpuTopologyLevel_t`.
    pub(super) level: Answer<u32>,
    /// `nvmlGpuP2PStatus_t` for reading, writing and NVLink.
    pub(super) read: Answer<u32>,
    pub(super) write: Answer<u32>,
    pub(super) nvlink: Answer<u32>,
}

impl Fabric {
    /// `01234567-89ab-cdef-0123-456789abcdef`, as `nvidia-smi -q` prints it.
    pub(super) fn cluster(&self) -> String {
        let mut text = String::new();
        for (at, byte) in self.uuid.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

impl Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "driver", &[field(&self.driver)])?;
        if !self.lacks.is_empty() {
            writeln!(f, "lacks {}", self.lacks.join(" "))?;
        }
        for (index, gpu) in self.gpus.iter().enumerate() {
            match gpu {
                Ok(gpu) => gpu.write(f, &format!("gpu{index}"))?,
                Err(code) => writeln!(f, "gpu{index} at !{code}")?,
            }
        }
        for Pair { a, b, level, read, write, nvlink } in &self.pairs {
            line(f, &format!("gpu{a}-gpu{b}"), &[level, read, write, nvlink].map(field))?;
        }
        Ok(())
    }
}

impl Gpu {
    fn write(&self, f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
        writeln!(f, "{key} at {}", self.address)?;
        line(f, &format!("{key} name"), &[field(&self.name)])?;
        line(f, &format!("{key} uuid"), &[field(&self.uuid)])?;
        line(f, &format!("{key} memory"), &[field(&self.memory_bytes)])?;
        let nodes = self.numa_nodes.map(|mask| format!("{mask:x}"));
        line(f, &format!("{key} nodes"), &[field(&nodes)])?;
        line(f, &format!("{key} power"), &[field(&self.power_state)])?;
        let Pcie { generation, generation_max, lanes, lanes_max } = &self.pcie;
        line(f, &format!("{key} pcie"), &[generation, generation_max, lanes, lanes_max].map(field))?;
        line(f, &format!("{key} mig"), &[field(&self.mig)])?;
        for (number, s) in &self.slices {
            let place = s.place.map(|(profile, start, size)| format!("{profile} {start} {size}"));
            // One call tells three fields.
            let place =
                place.map_err(|code| format!("!{code} !{code} !{code}")).unwrap_or_else(|error| error);
            let [gpu, compute] = [&s.gpu_instance, &s.compute_instance].map(field);
            let [uuid, name] = [&s.uuid, &s.name].map(field);
            let fields = [gpu, compute, place, field(&s.memory_mib), uuid, name];
            line(f, &format!("{key} slice{number}"), &fields)?;
        }
        match &self.fabric {
            Ok(fabric) => {
                let Fabric { version, state, status, clique, health, summary, .. } = fabric;
                let uuid = fabric.cluster();
                writeln!(f, "{key} fabric {version} {state} {status} {clique} {health} {summary} {uuid}")?;
            }
            Err(code) => line(f, &format!("{key} fabric"), &[format!("!{code}")])?,
        }
        for (number, link) in &self.links {
            let NvLink { is_active, remote_type, version, mb_per_s, address } = link;
            let [state, kind, version, speed] = [is_active, remote_type, version, mb_per_s].map(field);
            let fields = [state, kind, version, speed, field(address)];
            line(f, &format!("{key} link{number}"), &fields)?;
        }
        Ok(())
    }
}

fn field<T: Display>(answer: &Answer<T>) -> String {
    match answer {
        Ok(value) => value.to_string(),
        Err(code) => format!("!{code}"),
    }
}

/// A line is left out when all of it is unsupported.
fn line(f: &mut fmt::Formatter<'_>, key: &str, fields: &[String]) -> fmt::Result {
    let nothing = [NOT_SUPPORTED, FUNCTION_NOT_FOUND].map(|code| format!("!{code}"));
    if fields.iter().all(|field| nothing.contains(field)) {
        return Ok(());
    }
    writeln!(f, "{key} {}", fields.join(" "))
}
