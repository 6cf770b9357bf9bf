use super::*;

#[test]
fn a_short_run_on_the_real_map() {
    let folder = data();
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return;
    }
    let cluster = cluster(&folder).unwrap();
    assert_eq!((cluster.names.len(), cluster.spans[cluster.levels.len() - 1].len()), (847, 119));
    let report = measure(&cluster, 120).unwrap();
    assert_eq!(report.psws, 3);
    assert_eq!(report.policies[0].policy, "ours");
    for figures in &report.policies {
        assert_eq!(figures.placed + figures.refused, 120);
        assert!(figures.leaves_mean >= figures.fewest_mean);
        assert!(figures.psws_mean >= figures.psws_fewest_mean);
        // Names of hosts are hashes here, so first fit by name is as good as random.
        let best = matches!(figures.policy.as_str(), "ours" | "kueue" | "slurm_tree" | "slurm_block");
        assert_eq!(figures.at_fewest_percent > 80.0, best, "{figures:?}");
    }
    assert_eq!(measure(&cluster, 120).unwrap().policies, report.policies);
}
