//! Writes the seeds that are real encodings to the folder `seeds`, beside those written by hand.
//!
//! Why: a format that changes makes its seeds stale; `tools/fuzz.sh seeds` makes them anew.

// For what the compiled-in coverage calls, here as in the targets.
use libfuzzer_sys as _;

fn main() -> std::io::Result<()> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let all = [
        margay_cluster::fuzzing::seeds(),
        margay_meta::fuzzing::seeds(),
        margay_s3::fuzzing::seeds(),
        margay_segment::fuzzing::seeds(),
        margay_volume::fuzzing::seeds(),
    ];
    for (target, name, bytes) in all.into_iter().flatten() {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
