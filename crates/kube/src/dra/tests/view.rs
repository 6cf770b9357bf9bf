use phalanx_model::DeviceMask;
use serde_json::json;

use super::*;
use crate::dra::{DraDevice, is_one_shape};

/// In the shape of what NVIDIA's driver publishes.
fn published(node: &str, serial: u32) -> Inventory {
    let gpu = |at: u32, bus: &str| {
        json!({
            "name": format!("gpu-{at}"),
            "attributes": {
                "type": {"string": "gpu"}, "productName": {"string": "NVIDIA A100-PCIE-40GB"},
                "uuid": {"string": format!("GPU-{serial}-{at}")},
                "cudaComputeCapability": {"version": "8.0.0"}, "driverVersion": {"version": "580.126.20"},
                "resource.kubernetes.io/pciBusID": {"string": format!("0000:{bus}:00.0")},
                "resource.kubernetes.io/pcieRoot": {"string": format!("pci{bus}")},
                "resource.kubernetes.io/numaNode": {"int": at / 2},
            },
            "capacity": {"memory": {"value": "40Gi"}},
        })
    };
    let mig = json!({
        "name": "gpu-10-mig-1g.5gb-0",
        "attributes": {
            "type": {"string": "mig"}, "productName": {"string": "NVIDIA A100-PCIE-40GB"},
            "profile": {"string": "1g.5gb"}, "parentUUID": {"string": format!("GPU-{serial}-10")},
            "uuid": {"string": format!("MIG-{serial}")},
            "resource.kubernetes.io/pciBusID": {"string": "0000:E1:00.0"},
        },
        "capacity": {"memory": {"value": "4864Mi"}, "multiprocessors": {"value": "14"}},
    });
    let mut inventory = inventory(json!([]));
    let mut slice = slice("s0", json!([mig, gpu(10, "E1"), gpu(2, "B1"), gpu(1, "65")]));
    slice["spec"]["nodeName"] = json!(node);
    inventory.slice_applied(Arc::new(object(slice)));
    let class = json!({"metadata": {"name": "whole"}, "spec": {"selectors": [
        {"cel": {"expression": format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'")}},
    ]}});
    inventory.class_applied(Arc::new(object(class)));
    inventory
}

fn view(inventory: &Inventory, class: &str) -> Vec<DraDevice> {
    inventory.devices_of(&node("n0"), class).unwrap()
}

#[test]
fn devices_stand_by_address_with_parents_first() {
    let inventory = published("n0", 1);
    let names: Vec<String> = view(&inventory, "gpu").into_iter().map(|device| device.id.device).collect();
    assert_eq!(names, ["gpu-1", "gpu-2", "gpu-10", "gpu-10-mig-1g.5gb-0"]);
    let whole = view(&inventory, "whole");
    assert_eq!(whole.len(), 3);
    assert_eq!(
        whole[0],
        DraDevice {
            id: crate::dra::DeviceId { driver: DRIVER.into(), pool: "n0".into(), device: "gpu-1".into() },
            kind: "gpu".into(),
            product: "NVIDIA A100-PCIE-40GB".into(),
            uuid: "GPU-1-1".into(),
            parent_uuid: None,
            pci_address: Some("0000:65:00.0".into()),
            pcie_root: Some("pci65".into()),
            numa: Some(0),
            memory_bytes: 40 << 30,
            is_taken: false,
            is_tainted: false,
        }
    );
    assert_eq!(view(&inventory, "gpu")[3].parent_uuid.as_deref(), Some("GPU-1-10"));
    let why = inventory.devices_of(&node("n0"), "none").unwrap_err().to_string();
    assert_eq!(why, "device class none: there is no such class");
}

#[test]
fn equal_machines_are_of_one_shape() {
    let (a, b) = (published("n0", 1), published("n0", 2));
    assert!(is_one_shape(&view(&a, "gpu"), &view(&b, "gpu")));
    assert!(!is_one_shape(&view(&a, "gpu"), &view(&b, "whole")));
    let mut other = view(&b, "gpu");
    other[1].pcie_root = other[0].pcie_root.clone();
    assert!(!is_one_shape(&view(&a, "gpu"), &other));
    let mut other = view(&b, "gpu");
    other[3].parent_uuid = Some(other[0].uuid.clone());
    assert!(!is_one_shape(&view(&a, "gpu"), &other));
}

#[test]
fn a_demand_counts_devices_and_tells_which_are_eligible() {
    let mut inventory = published("n0", 1);
    let pinned = claim(
        "c",
        json!({"requests": [
            {"name": "two", "exactly": {"deviceClassName": "whole", "count": 2, "selectors": [{"cel": {"expression":
                format!("device.attributes['{DRIVER}'].uuid != 'GPU-1-2'")}}]}},
            {"name": "one", "firstAvailable": [
                {"name": "mig", "deviceClassName": "gpu", "selectors": [{"cel": {"expression":
                    format!("device.attributes['{DRIVER}'].type == 'mig'")}}]},
                {"name": "large", "deviceClassName": "gpu", "count": 3, "capacity": {"requests": {"memory": "40Gi"}}},
            ]},
        ]}),
    );
    let demand = inventory.demand(&[&pinned]).unwrap();
    assert_eq!(demand.devices(), Some(3));
    assert_eq!(
        demand.shape,
        inventory
            .demand(&[&claim("other", serde_json::to_value(&pinned.spec.devices).unwrap())])
            .unwrap()
            .shape
    );
    assert_ne!(demand.shape, inventory.demand(&[&claim_of("c", 3)]).unwrap().shape);
    let wanted: Vec<(&str, Option<usize>)> =
        demand.wanted.iter().map(|one| (one.request.as_str(), one.count)).collect();
    assert_eq!(wanted, [("two", Some(2)), ("one/mig", Some(1)), ("one/large", Some(3))]);

    // What is eligible is so whether it is free or not.
    hold(&mut inventory, &claim_of("x", 2));
    let devices = view(&inventory, "gpu");
    assert_eq!(devices.iter().filter(|device| device.is_taken).count(), 2);
    let eligible = inventory.eligible(&[&pinned], &node("n0"), &devices).unwrap();
    let masks: Vec<DeviceMask> = eligible.iter().map(|one| one.devices).collect();
    assert_eq!(masks, [DeviceMask(0b101), DeviceMask(0b1000), DeviceMask(0b111)]);
    let all = claim(
        "all",
        json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}),
    );
    assert_eq!(inventory.demand(&[&all, &pinned]).unwrap().devices(), None);
}
