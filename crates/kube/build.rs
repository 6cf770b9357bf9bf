//! The kubelet's protocols, without a protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protocols = ["deviceplugin.v1beta1.proto", "podresources.v1.proto"];
    for protocol in protocols {
        println!("cargo::rerun-if-changed=proto/{protocol}");
    }
    let described = protox::compile(protocols, ["proto"])?;
    tonic_prost_build::configure().compile_fds(described)?;
    Ok(())
}
