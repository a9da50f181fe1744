//! What a person and a monitor want to know about disks.
//!
//! Not here:   how it is shown (the binary).

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::catalogue::Catalogue;
use crate::class::Class;
use crate::record::State;

/// One directory.
#[derive(Clone, Debug)]
pub struct DiskStatus {
    pub root: PathBuf,
    pub metadata: State,
    pub data: State,
    /// Why it is out.
    pub why: Option<String>,
    pub free_bytes: Option<u64>,
    pub total_bytes: Option<u64>,
    /// Complete copies there.
    pub files: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Status {
    pub copies: u32,
    pub disks: Vec<DiskStatus>,
    /// Files with fewer complete copies than wanted; of these, those with none.
    pub short_files: u64,
    pub lost_files: u64,
    /// The copying that is under way; all 0 if there is none.
    pub filling: Filling,
    /// Since the start.
    pub copied_files: u64,
    pub copied_bytes: u64,
    pub failed_files: u64,
}

/// Copying that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filling {
    pub is_running: bool,
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub files_left: u64,
    pub bytes_per_second: u64,
    pub seconds_left: Option<u64>,
}

impl Catalogue {
    pub(crate) fn status(&self) -> Status {
        let members = self.members();
        let mut status = Status { copies: self.copies.load(Ordering::Relaxed), ..Status::default() };
        let mut files = vec![0; members.len()];
        let metadata = members.iter().filter(|member| member.state(Class::Metadata) != State::None).count();
        for entry in self.names.lock().entries.values() {
            let inner = entry.inner.read();
            for (member, files) in members.iter().zip(&mut files) {
                *files += u64::from(
                    inner.copies.iter().any(|copy| copy.member.id == member.id && copy.is_readable(entry.class)),
                );
            }
            let wanted = if entry.class == Class::Data { status.copies as usize } else { metadata };
            status.short_files += u64::from(inner.whole(entry.class) < wanted);
            status.lost_files += u64::from(inner.readable(entry.class) == 0);
        }
        for (member, files) in members.iter().zip(files) {
            let space = if member.is_living() { self.env.disk.space(&member.root).ok() } else { None };
            status.disks.push(DiskStatus {
                root: member.root.clone(),
                metadata: member.state(Class::Metadata),
                data: member.state(Class::Data),
                why: member.lost().map(|lost| lost.why).filter(|_| member.is_out()),
                free_bytes: space.map(|space| space.free_bytes),
                total_bytes: space.map(|space| space.total_bytes),
                files,
            });
        }
        let progress = *self.progress.lock();
        (status.copied_files, status.copied_bytes) = (progress.copied_files, progress.copied_bytes);
        status.failed_files = progress.failed_files;
        if let Some(since) = progress.since {
            let seconds = self.env.clock.monotonic().saturating_sub(since).as_secs_f64().max(0.001);
            let rate = (progress.done_bytes as f64 / seconds) as u64;
            let left = progress.total_bytes.saturating_sub(progress.done_bytes);
            status.filling = Filling {
                is_running: true,
                done_bytes: progress.done_bytes,
                total_bytes: progress.total_bytes,
                files_left: progress.files_left,
                bytes_per_second: rate,
                seconds_left: left.checked_div(rate),
            };
        }
        status
    }
}
