use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Selector;

fn gpu() -> Device {
    let text = |text: &str| DeviceAttribute { string: Some(text.to_owned()), ..Default::default() };
    let attributes = [
        ("productName", text("NVIDIA A100-PCIE-40GB")),
        ("type", text("gpu")),
        (
            "cudaComputeCapability",
            DeviceAttribute { version: Some("8.0.0".to_owned()), ..Default::default() },
        ),
        ("numa", DeviceAttribute { int: Some(1), ..Default::default() }),
        ("healthy", DeviceAttribute { bool: Some(true), ..Default::default() }),
        (
            "profiles",
            DeviceAttribute {
                strings: Some(vec!["1g.5gb".to_owned(), "2g.10gb".to_owned()]),
                ..Default::default()
            },
        ),
        ("resource.kubernetes.io/pcieRoot", text("pci0000:64")),
    ];
    let memory = DeviceCapacity { value: Quantity("40Gi".to_owned()), ..Default::default() };
    Device {
        name: "gpu-0".to_owned(),
        attributes: Some(attributes.map(|(name, value)| (name.to_owned(), value)).into()),
        capacity: Some(BTreeMap::from([("memory".to_owned(), memory)])),
        ..Default::default()
    }
}

fn selects(expression: &str) -> Result<bool, String> {
    Selector::compile(expression)?.selects("gpu.nvidia.com", &gpu())
}

#[test]
fn what_kubernetes_documents_is_understood() {
    let cases = [
        ("true", true),
        ("device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'", true),
        ("device.driver == 'other.com'", false),
        ("device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')", true),
        ("device.attributes['gpu.nvidia.com'].productName.startsWith('NVIDIA H100')", false),
        ("device.attributes['gpu.nvidia.com']['numa'] > 0", true),
        ("device.attributes['gpu.nvidia.com'].healthy", true),
        ("device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:64'", true),
        ("device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('10Gi'))", true),
        ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40960Mi')) == 0", true),
        ("device.capacity['gpu.nvidia.com'].memory == quantity('40960Mi')", true),
        ("quantity('1Gi').add(quantity('1Gi')).sub(1).isLessThan(quantity('2Gi'))", true),
        (
            "quantity('2k').asInteger() == 2000 && quantity('-1').sign() == -1 && isQuantity('x') == false",
            true,
        ),
        ("device.attributes['gpu.nvidia.com'].cudaComputeCapability.isGreaterThan(semver('7.5.0'))", true),
        ("device.attributes['gpu.nvidia.com'].cudaComputeCapability.major() >= 9", false),
        ("semver('v1.2', true).compareTo(semver('1.2.0')) == 0 && !isSemver('v1.2')", true),
        ("semver('1.0.0-rc1').isLessThan(semver('1.0.0'))", true),
        ("cel.bind(own, device.attributes['gpu.nvidia.com'], own.healthy && own.numa == 1)", true),
        ("device.allowMultipleAllocations == false", true),
        ("'gpu.nvidia.com' in device.attributes && !('other.com' in device.attributes)", true),
        (
            "'memory' in device.capacity['gpu.nvidia.com'] && !('memory' in device.capacity['other.com'])",
            true,
        ),
        (
            "!('absent' in device.attributes['gpu.nvidia.com']) || device.attributes['gpu.nvidia.com'].absent",
            true,
        ),
        ("has(device.attributes['other.com'].absent)", false),
        ("has(device.attributes['gpu.nvidia.com'].numa)", true),
        ("device.attributes.exists(domain, domain == 'resource.kubernetes.io')", true),
        ("device.attributes['gpu.nvidia.com'].?absent.orValue('none') == 'none'", true),
        ("device.attributes['gpu.nvidia.com'].profiles.exists(profile, profile == '2g.10gb')", true),
        ("device.attributes['gpu.nvidia.com'].profiles.includes('1g.5gb')", true),
        ("device.attributes['gpu.nvidia.com'].type.includes('mig')", false),
        ("cel.bind(all, device.attributes, all['gpu.nvidia.com'].numa == 1 && size(all['none']) == 0)", true),
        ("[1, 2].map(x, x + 1) == [2, 3]", true),
    ];
    for (expression, expected) in cases {
        assert_eq!(selects(expression), Ok(expected), "{expression}");
    }
}

#[test]
fn what_is_wrong_is_an_error_in_words() {
    let cases = [
        ("device.attributes['gpu.nvidia.com'].absent == 'x'", "absent"),
        ("device.attributes['no-such-domain'].absent.isGreaterThan(quantity('0'))", "absent"),
        ("device.capacity['gpu.nvidia.com'].memory.isGreaterThan(semver('1.0.0'))", "isGreaterThan"),
        ("1", "must evaluate to bool, not int"),
        ("?!", "yntax error"),
        ("gpu.type == 'x'", "undeclared reference to 'gpu'"),
        ("[1].all(x, y == x)", "undeclared reference to 'y'"),
        ("device.nothing == 1", "nothing"),
        ("nothing(device)", "nothing"),
        ("quantity('ten') == quantity('10')", "no quantity"),
        ("semver('1') == semver('1.0.0')", "semantic version"),
    ];
    for (expression, part) in cases {
        let why = selects(expression).expect_err(expression);
        assert!(why.contains(part), "{expression}: {why}");
    }
}

#[test]
fn an_attribute_that_cannot_be_read_ends_the_evaluation() {
    let mut device = gpu();
    let bad = DeviceAttribute { version: Some("1".to_owned()), ..Default::default() };
    device.attributes.get_or_insert_default().insert("driverVersion".to_owned(), bad);
    let selector = Selector::compile("true").unwrap();
    assert!(selector.selects("d", &device).expect_err("no version").contains("attribute driverVersion"));

    device.attributes.get_or_insert_default().insert("driverVersion".to_owned(), DeviceAttribute::default());
    assert!(selector.selects("d", &device).expect_err("no value").contains("unsupported attribute value"));
}

/// Each of these would take minutes, or more memory than there is.
#[test]
fn what_could_run_for_long_is_refused_before_it_runs() {
    let letters = "x".repeat(60);
    let doubled =
        (0..20).fold(format!("'{letters}'"), |inner, at| format!("cel.bind(v{at}, {inner}, v{at} + v{at})"));
    let loops = (0..5).fold("true".to_owned(), |inner, at| format!("device.attributes.all(v{at}, {inner})"));
    let replaced =
        (0..6).fold(format!("'{letters}'"), |inner, _| format!("{inner}.replace('x', '{letters}')"));
    for expression in [format!("size({doubled}) > 0"), loops, format!("{replaced} == ''")] {
        let why = Selector::compile(&expression).err().unwrap_or_default();
        assert!(why.contains("too complex"), "{expression}: {why}");
    }
    let long = format!("'{}' == ''", "x".repeat(11_000));
    assert!(Selector::compile(&long).err().unwrap_or_default().contains("bytes"));
}

/// Whatever is nested, an answer comes; a stack is no limit that can be caught.
#[test]
fn deep_expressions_end_in_an_answer() {
    let deep = [
        "(".repeat(5000) + "true" + &")".repeat(5000),
        "!".repeat(10_000) + "true",
        "-".repeat(10_000) + "1 == 1",
        "[".repeat(5000) + &"]".repeat(5000),
        "true".to_owned() + &" && true".repeat(1000),
        "1".to_owned() + &" + 1".repeat(2500) + " > 0",
        "true".to_owned() + &" ? true : false".repeat(600),
        "device".to_owned() + &".a".repeat(4000),
        "device.attributes".to_owned() + &"['a']".repeat(1500),
    ];
    for expression in deep {
        let _ = Selector::compile(&expression).map(|selector| selector.selects("d", &gpu()));
    }
    // As deep as is allowed, on the small stack of a test.
    let allowed = [
        "(".repeat(24) + "true" + &")".repeat(24),
        "!".repeat(24) + "true",
        "[".repeat(22) + &"]".repeat(22) + " == []",
        "{1: ".repeat(22) + "1" + &"}".repeat(22) + " == {}",
        "1".to_owned() + &" + 1".repeat(22) + " > 0",
        "true".to_owned() + &" ? true : false".repeat(24),
        "device".to_owned() + &".attributes".repeat(24),
        "cel.bind(x, true, ".repeat(21) + "x" + &")".repeat(21),
        "device.attributes.all(x, ".repeat(10) + "true" + &")".repeat(10),
    ];
    for expression in allowed {
        let _ = Selector::compile(&expression).map(|selector| selector.selects("d", &gpu()));
    }
}
