//! Disks of a volume as a person and a monitor see them.
//!
//! Not here:   what the disks do (margay-disks).

use std::path::Path;

use margay_disks::{DiskStatus, Disks, Status};
use margay_metrics::{Exposition, Kind};
use serde_json::{Value, json};

/// A change that a running server is asked for.
pub fn change(disks: Option<&Disks>, wish: &Value) -> Result<Value, String> {
    let path = wish["path"].as_str().ok_or("the request lacks path")?;
    let disks = disks.ok_or("this volume has no disks: start it with `margay serve --disk DIR`")?;
    let changed = match wish["do"].as_str() {
        Some("add") => disks.add(Path::new(path)),
        Some("remove") => disks.remove(Path::new(path)),
        _ => return Err("the request lacks what to do".to_owned()),
    };
    changed.map_err(|error| error.to_string())?;
    Ok(status(&disks.status()))
}

/// For `margay status`.
pub fn status(status: &Status) -> Value {
    let filling = status.filling;
    let filling = if filling.is_running {
        json!({
            "done_bytes": filling.done_bytes,
            "total_bytes": filling.total_bytes,
            "files_left": filling.files_left,
            "bytes_per_second": filling.bytes_per_second,
            "seconds_left": filling.seconds_left,
        })
    } else {
        json!("none")
    };
    let disks: serde_json::Map<String, Value> =
        status.disks.iter().map(|disk| (disk.root.display().to_string(), disk_status(disk))).collect();
    json!({
        "copies": status.copies,
        "short_files": status.short_files,
        "lost_files": status.lost_files,
        "filling": filling,
        "copied_bytes": status.copied_bytes,
        "failed_files": status.failed_files,
        "of": disks,
    })
}

fn disk_status(disk: &DiskStatus) -> Value {
    let mut value = json!({
        "metadata": disk.metadata.name(),
        "payload": disk.data.name(),
        "free_bytes": disk.free_bytes,
        "total_bytes": disk.total_bytes,
        "files": disk.files,
    });
    if let Some(why) = &disk.why {
        let root = disk.root.display();
        value["why"] = json!(why);
        value["next"] = json!(format!("replace the disk, mount an empty one at {root}, then: margay disk add {root}"));
    }
    value
}

pub fn write_metrics(status: &Status, out: &mut Exposition) {
    let (gauge, counter) = (Kind::Gauge, Kind::Counter);
    out.value(
        "margay_disk_copies_wanted",
        gauge,
        "Disks that each piece of payload is to be on.",
        u64::from(status.copies),
    );
    out.value("margay_disk_short_files", gauge, "Files with fewer copies than wanted.", status.short_files);
    out.value("margay_disk_lost_files", gauge, "Files that no disk in use has.", status.lost_files);
    out.value("margay_disk_filling_bytes", gauge, "Bytes of the copying under way.", status.filling.total_bytes);
    out.value("margay_disk_filled_bytes", gauge, "Of these, copied.", status.filling.done_bytes);
    out.value(
        "margay_disk_copied_bytes_total",
        counter,
        "Bytes copied to disks that lacked them.",
        status.copied_bytes,
    );
    out.value("margay_disk_failed_files_total", counter, "Copies that could not be made.", status.failed_files);
    out.family("margay_disk_in", gauge, "1 for a disk that is used, 0 for one that is out.");
    for disk in &status.disks {
        out.sample("margay_disk_in", &[("disk", &disk.root.display().to_string())], u64::from(disk.why.is_none()));
    }
    out.family("margay_disk_free_bytes", gauge, "Free bytes of each disk that is used.");
    for disk in &status.disks {
        if let Some(bytes) = disk.free_bytes {
            out.sample("margay_disk_free_bytes", &[("disk", &disk.root.display().to_string())], bytes);
        }
    }
}
