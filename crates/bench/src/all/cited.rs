//! The published figures that stand below each suite.

use crate::cited::Cited;
use crate::{dirops, ls};

const SUITES: [(&str, &Cited); 5] = [
    ("mdtest", &TIGRISFS_MDTEST),
    ("ls-mounts", &ls::mounts::cited::LEOFS_2013),
    ("dirops-curve", &dirops::cited::EXT2_2001),
    ("goofys", &GEESEFS_2021),
    ("small", &TIGRISFS_SMALL),
];

/// Those for a suite.
pub(super) fn of(suite: &str) -> impl Iterator<Item = &'static Cited> {
    SUITES.into_iter().filter(move |(name, _)| *name == suite).map(|(_, cited)| cited)
}

const TIGRISFS_MDTEST: Cited = Cited {
    note: "Cited, other hardware, a far S3: TigrisFS' own table (mdtest -b 6 -I 8 -z 4), per second.",
    columns: &["row", "TigrisFS 64T", "TigrisFS 16T", "JuiceFS + Redis", "Goofys"],
    rows: &[
        &["directory creation", "2939", "858", "1536", "26"],
        &["directory stat", "107342", "119941", "8245", "141250"],
        &["directory rename", "65", "67", "1290", "6"],
        &["directory removal", "2233", "607", "1892", "16"],
        &["file creation", "2504", "890", "1852", "25"],
        &["file stat", "109301", "108108", "11521", "2232"],
        &["file read", "7498", "8102", "4891", "3829"],
        &["file removal", "2070", "614", "1703", "34"],
        &["tree creation", "3896", "4364", "1667", "25"],
        &["tree removal", "6866", "7338", "1799", "19"],
    ],
};

const GEESEFS_2021: Cited = Cited {
    note: "Cited, other hardware, a far S3: GeeseFS' raw figures of 2021, medians in ms. Each file was a process of its \
           own, and the large file had 1000 MiB.",
    columns: &["", "geesefs", "goofys", "s3fs", "local disk"],
    rows: &[
        &["create", "1180", "5180", "14600", "6"],
        &["remove", "1030", "2830", "3320", "98"],
        &["create in parallel", "930", "1190", "11800", "21"],
        &["remove in parallel", "260", "2250", "2710", "22"],
        &["write", "9130", "7170", "8130", "3150"],
        &["read", "3560", "4680", "11700", "2980"],
        &["first byte", "121", "51", "288", "2"],
        &["ls of 1000", "216", "157", "1770", "12"],
        &["find of 820", "83", "158", "4480", ""],
    ],
};

const TIGRISFS_SMALL: Cited = Cited {
    note: "Cited, other hardware, a far S3: TigrisFS' own table for 6400 such files, minutes and seconds.",
    columns: &["", "tigrisfs", "rclone+cache", "rclone", "goofys", "s3fs"],
    rows: &[&["cp -r", "0:25", "6:20", "7:03", "8:51", "53:30"], &["rm -r", "0:22", "6:16", "6:20", "8:36", "18:26"]],
};
