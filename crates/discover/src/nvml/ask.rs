//! All calls into the library. The wrapper's own types are passed by: they hide the numbers of errors, which a
//! description records, and lack some of the calls.
//!
//! Every function is called with handles of this library, which is open as long as the [`Nvml`] lives, and
//! writes through pointers to values that outlive the call; both are as nvml.h declares them.
#![allow(unsafe_code, reason = "foreign functions, called as nvml.h declares them")]

pub(super) mod vitals;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings as sys;
use phalanx_model::DEVICES_PER_NODE_MAX;
use sys::{NvmlLib, field_id, nvmlDevice_t};

use super::answers::{
    Answer, Answers, FUNCTION_NOT_FOUND, Fabric, Gpu, NOT_SUPPORTED, NvLink, Pair, Pcie, Slice,
};

/// `NVML_ERROR_INVALID_ARGUMENT` and `NVML_ERROR_NOT_FOUND` of nvml.h.
const INVALID_ARGUMENT: u32 = 2;
const NOT_FOUND: u32 = 6;
/// NVLinks of one device that are asked for: twice `NVML_NVLINK_MAX_LINKS` of nvml.h (18). A device answers
/// "invalid argument" after its last.
const NVLINKS_MAX: u32 = 36;
/// MIG devices of one device that are asked for; the largest profiles have 7.
const SLICES_MAX: u32 = 16;
/// Longest texts of nvml.h (`NVML_DEVICE_UUID_V2_BUFFER_SIZE`, `NVML_DEVICE_NAME_V2_BUFFER_SIZE`).
const TEXT: u32 = 96;

/// Asks for everything.
pub(super) fn everything(nvml: &Nvml) -> Answer<Answers> {
    let lib = nvml.lib();
    let count = ask(&lib.nvmlDeviceGetCount_v2, 0, |f, to| unsafe { f(to) })?;
    let mut handles = Vec::new();
    let mut gpus = Vec::new();
    for index in 0..count.min(DEVICES_PER_NODE_MAX) {
        let handle = ask(&lib.nvmlDeviceGetHandleByIndex_v2, null(), |f, to| unsafe { f(index, to) });
        let found = handle.and_then(|handle| gpu(lib, handle));
        if let (Ok(handle), Ok(_)) = (handle, &found) {
            handles.push((index, handle));
        }
        gpus.push(found);
    }
    let mut pairs = Vec::new();
    for (at, (a, left)) in handles.iter().enumerate() {
        pairs.extend(handles.iter().skip(at + 1).map(|(b, right)| pair(lib, (*a, *left), (*b, *right))));
    }
    let driver = ask_text(&lib.nvmlSystemGetDriverVersion, |f, to| unsafe { f(to, TEXT) });
    Ok(Answers { driver, lacks: lacks(lib), count, gpus, pairs })
}

/// What old drivers do not have, of all that is asked for.
fn lacks(lib: &NvmlLib) -> Vec<&'static str> {
    let asked = [
        ("nvmlDeviceGetAttributes_v2", lib.nvmlDeviceGetAttributes_v2.is_err()),
        ("nvmlDeviceGetFieldValues", lib.nvmlDeviceGetFieldValues.is_err()),
        ("nvmlDeviceGetGpuFabricInfo", lib.nvmlDeviceGetGpuFabricInfo.is_err()),
        ("nvmlDeviceGetGpuFabricInfoV", lib.nvmlDeviceGetGpuFabricInfoV.is_err()),
        ("nvmlDeviceGetMemoryAffinity", lib.nvmlDeviceGetMemoryAffinity.is_err()),
        ("nvmlDeviceGetMemoryInfo_v2", lib.nvmlDeviceGetMemoryInfo_v2.is_err()),
        ("nvmlDeviceGetMigMode", lib.nvmlDeviceGetMigMode.is_err()),
        ("nvmlDeviceGetNvLinkRemoteDeviceType", lib.nvmlDeviceGetNvLinkRemoteDeviceType.is_err()),
        ("nvmlDeviceGetNvLinkVersion", lib.nvmlDeviceGetNvLinkVersion.is_err()),
        ("nvmlDeviceGetP2PStatus", lib.nvmlDeviceGetP2PStatus.is_err()),
        ("nvmlGpuInstanceGetInfo", lib.nvmlGpuInstanceGetInfo.is_err()),
    ];
    asked.into_iter().filter(|(_, lacks)| *lacks).map(|(name, _)| name).collect()
}

fn gpu(lib: &NvmlLib, handle: nvmlDevice_t) -> Answer<Gpu> {
    let number = |symbol| ask(symbol, 0, |f: &NumberOf, to| unsafe { f(handle, to) });
    // A device that does not tell its place is lost.
    let pci = ask(&lib.nvmlDeviceGetPciInfo_v3, Plain::zeroed(), |f, to| unsafe { f(handle, to) })?;
    let name = ask_text(&lib.nvmlDeviceGetName, |f, to| unsafe { f(handle, to, TEXT) });
    Ok(Gpu {
        address: text(&pci.busId),
        uuid: ask_text(&lib.nvmlDeviceGetUUID, |f, to| unsafe { f(handle, to, TEXT) }),
        memory_bytes: memory(lib, handle).map(|memory| memory.total),
        numa_nodes: numa_nodes(lib, handle),
        power_state: number(&lib.nvmlDeviceGetPerformanceState),
        pcie: Pcie {
            generation: number(&lib.nvmlDeviceGetCurrPcieLinkGeneration),
            generation_max: number(&lib.nvmlDeviceGetMaxPcieLinkGeneration),
            lanes: number(&lib.nvmlDeviceGetCurrPcieLinkWidth),
            lanes_max: number(&lib.nvmlDeviceGetMaxPcieLinkWidth),
        },
        mig: mig_mode(lib, handle),
        slices: slices(lib, handle),
        fabric: fabric(lib, handle),
        links: links(lib, handle),
        name,
    })
}

struct Memory {
    total: u64,
    used: u64,
}

fn memory(lib: &NvmlLib, handle: nvmlDevice_t) -> Answer<Memory> {
    let into = sys::nvmlMemory_v2_t { version: version::<sys::nvmlMemory_v2_t>(2), ..Plain::zeroed() };
    let new = ask(&lib.nvmlDeviceGetMemoryInfo_v2, into, |f, to| unsafe { f(handle, to) });
    new.map(|m| Memory { total: m.total, used: m.used }).or_else(|_| {
        // Drivers before 510 have the first version alone.
        let old = ask(&lib.nvmlDeviceGetMemoryInfo, Plain::zeroed(), |f, to| unsafe { f(handle, to) });
        old.map(|m| Memory { total: m.total, used: m.used })
    })
}

fn numa_nodes(lib: &NvmlLib, handle: nvmlDevice_t) -> Answer<u64> {
    // The first 64 nodes are enough: those of GPU memory come last. Scope 0 is `NVML_AFFINITY_SCOPE_NODE`.
    let mask = ask(&lib.nvmlDeviceGetMemoryAffinity, [0; 1], |f, to| unsafe { f(handle, 1, to.cast(), 0) });
    #[allow(clippy::useless_conversion, reason = "a long has 32 bits elsewhere")]
    mask.map(|[nodes]: [std::ffi::c_ulong; 1]| u64::from(nodes))
}

fn mig_mode(lib: &NvmlLib, handle: nvmlDevice_t) -> Answer<u32> {
    let mut pending = 0;
    ask(&lib.nvmlDeviceGetMigMode, 0, |f, to| unsafe { f(handle, to, &raw mut pending) })
}

fn slices(lib: &NvmlLib, handle: nvmlDevice_t) -> Vec<(u32, Slice)> {
    let most = ask(&lib.nvmlDeviceGetMaxMigDeviceCount, 0, |f, to| unsafe { f(handle, to) });
    let mut found = Vec::new();
    for number in 0..most.unwrap_or(0).min(SLICES_MAX) {
        let slice =
            ask(&lib.nvmlDeviceGetMigDeviceHandleByIndex, null(), |f, to| unsafe { f(handle, number, to) });
        // Numbers have holes where MIG devices were removed.
        if let Ok(slice) = slice {
            found.push((number, describe_slice(lib, handle, slice)));
        }
    }
    found
}

fn describe_slice(lib: &NvmlLib, parent: nvmlDevice_t, slice: nvmlDevice_t) -> Slice {
    let gpu_instance = ask(&lib.nvmlDeviceGetGpuInstanceId, 0, |f, to| unsafe { f(slice, to) });
    let place = gpu_instance.and_then(|id| {
        let instance = ask(&lib.nvmlDeviceGetGpuInstanceById, std::ptr::null_mut(), |f, to| unsafe {
            f(parent, id, to)
        })?;
        let into =
            sys::nvmlGpuInstanceInfo_t { device: null(), id, profileId: 0, placement: Plain::zeroed() };
        let info = ask(&lib.nvmlGpuInstanceGetInfo, into, |f, to| unsafe { f(instance, to) })?;
        Ok((info.profileId, info.placement.start, info.placement.size))
    });
    let attributes = ask(&lib.nvmlDeviceGetAttributes_v2, Plain::zeroed(), |f, to| unsafe { f(slice, to) });
    Slice {
        gpu_instance,
        compute_instance: ask(&lib.nvmlDeviceGetComputeInstanceId, 0, |f, to| unsafe { f(slice, to) }),
        place,
        memory_mib: attributes.map(|a| a.memorySizeMB),
        uuid: ask_text(&lib.nvmlDeviceGetUUID, |f, to| unsafe { f(slice, to, TEXT) }),
        name: ask_text(&lib.nvmlDeviceGetName, |f, to| unsafe { f(slice, to, TEXT) }),
    }
}

/// The newest version of the structure that the library knows.
fn fabric(lib: &NvmlLib, handle: nvmlDevice_t) -> Answer<Fabric> {
    for number in [3, 2] {
        // The second version is the third without its end.
        let size = if number == 3 {
            version::<sys::nvmlGpuFabricInfo_v3_t>(3)
        } else {
            version::<sys::nvmlGpuFabricInfo_v2_t>(2)
        };
        let into = sys::nvmlGpuFabricInfo_v3_t { version: size, ..Plain::zeroed() };
        let told = ask(&lib.nvmlDeviceGetGpuFabricInfoV, into, |f, to| unsafe { f(handle, to) });
        if let Ok(info) = told {
            return Ok(Fabric {
                version: number,
                state: info.state.into(),
                status: info.status,
                clique: info.cliqueId,
                health: info.healthMask,
                summary: info.healthSummary.into(),
                uuid: info.clusterUuid,
            });
        }
    }
    let info = ask(&lib.nvmlDeviceGetGpuFabricInfo, Plain::zeroed(), |f, to| unsafe { f(handle, to) })?;
    Ok(Fabric {
        version: 1,
        state: info.state.into(),
        status: info.status,
        clique: info.cliqueId,
        health: 0,
        summary: 0,
        uuid: info.clusterUuid,
    })
}

fn links(lib: &NvmlLib, handle: nvmlDevice_t) -> Vec<(u32, NvLink)> {
    let mut found = Vec::new();
    for number in 0..NVLINKS_MAX {
        let is_active = ask(&lib.nvmlDeviceGetNvLinkState, 0, |f, to| unsafe { f(handle, number, to) });
        match is_active {
            Err(INVALID_ARGUMENT | FUNCTION_NOT_FOUND) => break,
            Err(NOT_SUPPORTED) => continue,
            _ => {}
        }
        let number_of =
            |symbol| ask(symbol, u32::MAX, |f: &NumberOfLink, to| unsafe { f(handle, number, to) });
        let pci = ask(&lib.nvmlDeviceGetNvLinkRemotePciInfo_v2, Plain::zeroed(), |f, to| unsafe {
            f(handle, number, to)
        });
        let link = NvLink {
            is_active,
            remote_type: number_of(&lib.nvmlDeviceGetNvLinkRemoteDeviceType),
            version: number_of(&lib.nvmlDeviceGetNvLinkVersion),
            mb_per_s: link_mb_per_s(lib, handle, number),
            // Switches that hang on no PCI of this host are told without an address.
            address: pci
                .map(|pci| text(&pci.busId))
                .and_then(|a| if a.is_empty() { Err(NOT_FOUND) } else { Ok(a) }),
        };
        found.push((number, link));
    }
    found
}

/// By the field for any link, the one for this link, or the one for all links; drivers know some of them.
fn link_mb_per_s(lib: &NvmlLib, handle: nvmlDevice_t, link: u32) -> Answer<u32> {
    let own = match link {
        0..=5 => Some(field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_L0.saturating_add(link)),
        6..=11 => Some(field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_L6.saturating_add(link - 6)),
        _ => None,
    };
    let fields = [
        Some(field_id::NVML_FI_DEV_NVLINK_GET_SPEED),
        own,
        Some(field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON),
    ];
    let mut last = Err(NOT_SUPPORTED);
    for field in fields.into_iter().flatten() {
        let told = link_field(lib, handle, link, field).map(|speed| u32::try_from(speed).unwrap_or(0));
        // An error that says more than "not supported" is kept.
        last = match (last, told) {
            (Err(code), Err(_)) if code != NOT_SUPPORTED => Err(code),
            (_, told) => told,
        };
        if matches!(last, Ok(1..)) {
            break;
        }
    }
    last
}

/// One field (`NVML_FI_*` of nvml.h) of one link.
fn link_field(lib: &NvmlLib, handle: nvmlDevice_t, link: u32, field: u32) -> Answer<u64> {
    let into = sys::nvmlFieldValue_t { fieldId: field, scopeId: link, ..Plain::zeroed() };
    let told = ask(&lib.nvmlDeviceGetFieldValues, into, |f, to| unsafe { f(handle, 1, to) })?;
    match told.nvmlReturn {
        // SAFETY: the union began as zeros, and any bits are a number.
        0 => Ok(unsafe { told.value.ullVal }),
        code => Err(code),
    }
}

fn pair(lib: &NvmlLib, (a, left): (u32, nvmlDevice_t), (b, right): (u32, nvmlDevice_t)) -> Pair {
    let level = ask(&lib.nvmlDeviceGetTopologyCommonAncestor, 0, |f, to| unsafe { f(left, right, to) });
    let peer = |what| ask(&lib.nvmlDeviceGetP2PStatus, 0, |f, to| unsafe { f(left, right, what, to) });
    let [read, write, nvlink] = [
        sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_READ,
        sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_WRITE,
        sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK,
    ]
    .map(peer);
    Pair { a, b, level, read, write, nvlink }
}

type NumberOf = unsafe extern "C" fn(nvmlDevice_t, *mut u32) -> u32;
type NumberOfLink = unsafe extern "C" fn(nvmlDevice_t, u32, *mut u32) -> u32;

/// Calls a function, if the library has it, and gives what it wrote into `into`.
fn ask<F, E, T>(symbol: &Result<F, E>, mut into: T, call: impl FnOnce(&F, *mut T) -> u32) -> Answer<T> {
    let symbol = symbol.as_ref().map_err(|_| FUNCTION_NOT_FOUND)?;
    match call(symbol, &raw mut into) {
        0 => Ok(into),
        code => Err(code),
    }
}

fn ask_text<F, E>(
    symbol: &Result<F, E>,
    call: impl FnOnce(&F, *mut std::ffi::c_char) -> u32,
) -> Answer<String> {
    ask(symbol, [0; TEXT as usize], |f, to| call(f, to.cast())).map(|chars| text(&chars))
}

/// Up to the first NUL; a description is lines, so that control characters become blanks.
fn text(chars: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().flat_map(|c| c.to_ne_bytes()).take_while(|c| *c != 0).collect();
    let text = String::from_utf8_lossy(&bytes).replace(char::is_control, " ");
    text.trim().to_owned()
}

/// `NVML_STRUCT_VERSION` of nvml.h.
fn version<T>(number: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0) | number << 24
}

const fn null() -> nvmlDevice_t {
    std::ptr::null_mut()
}

/// A structure of numbers, arrays of them and pointers.
///
/// # Safety
/// All bits zero must be a value.
unsafe trait Plain: Sized {
    fn zeroed() -> Self {
        // SAFETY: by the contract of the trait.
        unsafe { std::mem::zeroed() }
    }
}

// SAFETY: numbers, arrays of numbers, unions of numbers and pointers.
unsafe impl Plain for sys::nvmlPciInfo_t {}
// SAFETY: as above.
unsafe impl Plain for sys::nvmlMemory_t {}
// SAFETY: as above.
unsafe impl Plain for sys::nvmlMemory_v2_t {}
// SAFETY: as above.
unsafe impl Plain for sys::nvmlGpuInstancePlacement_t {}
// SAFETY: as above.
unsafe impl Plain for sys::nvmlDeviceAttributes_t {}
// SAFETY: as above.
unsafe impl Plain for sys::nvmlGpuFabricInfo_t {}
// SAFETY: as above.
unsafe impl Plain for sys::nvmlGpuFabricInfo_v3_t {}
// SAFETY: as above.
unsafe impl Plain for sys::nvmlFieldValue_t {}
// SAFETY: as above.
unsafe impl Plain for sys::nvmlUtilization_t {}
