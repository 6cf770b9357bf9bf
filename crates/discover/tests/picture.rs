//! What a person sees. `cargo test --test picture -- --nocapture` shows all of them.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{machines, read};
use phalanx_discover::picture::{Style, WIDTH_MAX, draw};
use phalanx_model::{DeviceMask, Machine};
use proptest::prelude::*;

fn owner(device: u32) -> Option<char> {
    (device == 2 || device == 3).then_some('A')
}

fn show(machine: &Machine, style: Style) -> String {
    let text = draw(machine, DeviceMask(0b1110), &owner, style);
    println!("{text}");
    text
}

#[test]
fn every_machine_is_narrow_and_shows_each_device_once() {
    for name in [
        "v100-hcm-8.txt",
        "a100-nps4-8.txt",
        "h100-nvswitch-8.txt",
        "pcie-8.txt",
        "v100-nvswitch-16.txt",
        "h100-degraded-8.txt",
        "gpu-pair-old.txt",
        "ansi-truncated.txt",
    ] {
        println!("== {name}");
        let machine = read(name).with_model("NVIDIA H100 80GB HBM3", 80 << 30).machine;
        for style in [Style::Unicode, Style::Ascii] {
            let text = show(&machine, style);
            assert!(text.lines().all(|l| l.chars().count() <= WIDTH_MAX), "{text}");
            assert!(style == Style::Unicode || text.is_ascii());
            for device in 0..machine.device_count() {
                let cells = ['○', '●', '.', '#', 'A'].map(|m| format!("{device:>2} {m}"));
                let edge = if style == Style::Unicode { '│' } else { '|' };
                let shown: usize =
                    cells.iter().map(|c| text.matches(&format!("{edge}{c}{edge}")).count()).sum();
                assert_eq!(shown, 1, "device {device} in {text}");
            }
        }
    }
}

#[test]
fn the_hybrid_cube_mesh_looks_like_this() {
    let machine = read("v100-hcm-8.txt").with_model("Tesla V100-SXM2-32GB", 32 << 30).machine;
    let text = draw(&machine, DeviceMask(0b1110), &owner, Style::Unicode);
    let (_, picture) = text.split_once('\n').unwrap();
    assert_eq!(
        picture,
        "\
┏━ NUMA 0 ━━━━━━━━━━━━━━━━━━━━━┓ ┏━ NUMA 1 ━━━━━━━━━━━━━━━━━━━━━┓
┃ ╭─ PCIe ─────╮               ┃ ┃ ╭─ PCIe ─────╮               ┃
┃ │┌────┐┌────┐│ ┌────┐ ┌────┐ ┃ ┃ │┌────┐┌────┐│ ┌────┐ ┌────┐ ┃
┃ ││ 0 ○││ 1 ●││ │ 2 A│ │ 3 A│ ┃ ┃ ││ 4 ○││ 5 ○││ │ 6 ○│ │ 7 ○│ ┃
┃ │└────┘└────┘│ └────┘ └────┘ ┃ ┃ │└────┘└────┘│ └────┘ └────┘ ┃
┃ │   mlx5_0   │               ┃ ┃ │   mlx5_1   │               ┃
┃ ╰────────────╯               ┃ ┃ ╰────────────╯               ┃
┃ ╞════ NVLink ×1-2: 0-3 ════╡ ┃ ┃ ╞════ NVLink ×1-2: 4-7 ════╡ ┃
┗━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┛ ┗━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┛
between islands: 0-4 ×2 · 1-5 ×2 · 2-6 ×1 · 3-7 ×1
○ free 5   ● busy 3   other marks are owners
"
    );
}

#[test]
fn machines_of_the_extremes_are_drawn() {
    let mut machine =
        read("pcie-8.txt").with_model("a name in 漢字 \u{1b}[31m that is far too long", 1).machine;
    machine.memory_bytes = 1536 << 30;
    let device = machine.devices[0].clone();
    machine.devices = vec![device; 64];
    machine.nics =
        vec![phalanx_model::Nic { name: "a-name-of-many-letters".into(), ..Default::default() }; 40];
    phalanx_discover::shape::finish(&mut machine);
    for style in [Style::Unicode, Style::Ascii] {
        let text = draw(&machine, machine.device_mask(), &|_| Some('\n'), style);
        println!("{text}");
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH_MAX && !l.contains('\u{1b}')), "{text}");
        assert!(text.contains("1.5 TiB"));
    }
    machine.devices.clear();
    machine.nics.truncate(2);
    phalanx_discover::shape::finish(&mut machine);
    let text = show(&machine, Style::Unicode);
    assert!(text.contains("no devices"), "{text}");
}

proptest! {
    #[test]
    fn any_machine_fits_into_the_width(machine in machines(), busy in any::<u64>()) {
        for style in [Style::Unicode, Style::Ascii] {
            let text = draw(&machine, DeviceMask(busy), &owner, style);
            for line in text.lines() {
                prop_assert!(line.chars().count() <= WIDTH_MAX, "{}", text);
            }
        }
    }
}
