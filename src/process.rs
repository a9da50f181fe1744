//! What the kernel counts for this process: memory, processor time, open files.
//!
//! Why:        names and units are those that Prometheus' own libraries give every program, so boards for any program fit.
//! Not here:   the counters of the server itself.

use std::io;
use std::path::Path;
use std::time::Duration;

use margay_env::{Env, OpenMode, proc};
use margay_metrics::{Exposition, Kind};
use rustix::process::{Resource, getrlimit};

/// Parts of a second in which /proc counts processor time; the same on every Linux that this program runs on.
const TICKS: u64 = 100;
/// Bytes of a file of /proc that are read.
const FILE_BYTES_MAX: usize = 16 * 1024;

/// Memory of this process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub resident_bytes: u64,
    pub resident_bytes_max: u64,
}

/// The process on its page of metrics. Values that cannot be read are omitted.
pub fn write(env: &Env, uptime: Duration, out: &mut Exposition) {
    if let Ok(memory) = memory(env) {
        out.value("process_resident_memory_bytes", Kind::Gauge, "Resident memory.", memory.resident_bytes);
        out.value("process_resident_memory_max_bytes", Kind::Gauge, "Largest so far.", memory.resident_bytes_max);
    }
    if let Ok(time) = processor_time(env) {
        let help = "Processor time, of the program and of the kernel for it.";
        out.value("process_cpu_seconds_total", Kind::Counter, help, time.as_secs_f64());
    }
    let open = proc::names(Path::new("/proc/self/fd"));
    if !open.is_empty() {
        // One of them is the listing's own.
        out.value("process_open_fds", Kind::Gauge, "File descriptors that are open.", open.len().saturating_sub(1));
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        out.value("process_max_fds", Kind::Gauge, "File descriptors that may be open.", most);
    }
    let began = env.clock.now().seconds().saturating_sub_unsigned(uptime.as_secs());
    out.value("process_start_time_seconds", Kind::Gauge, "When the process began, since 1970.", began);
}

pub fn memory(env: &Env) -> io::Result<Memory> {
    let text = read(env, "/proc/self/status")?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    };
    Ok(Memory {
        resident_bytes: bytes("VmRSS:").unwrap_or_default(),
        resident_bytes_max: bytes("VmHWM:").unwrap_or_default(),
    })
}

/// Processor time of all threads so far.
pub fn processor_time(env: &Env) -> io::Result<Duration> {
    let text = read(env, "/proc/self/stat")?;
    // The name, in parentheses, may contain blanks.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let field = |at: usize| fields.split_whitespace().nth(at).and_then(|field| field.parse::<u64>().ok());
    let (Some(user), Some(system)) = (field(11), field(12)) else { return Err(io::ErrorKind::InvalidData.into()) };
    Ok(Duration::from_millis((user + system) * 1000 / TICKS))
}

fn read(env: &Env, path: &str) -> io::Result<String> {
    let file = env.disk.open(path.as_ref(), OpenMode::Read)?;
    let mut buffer = vec![0; FILE_BYTES_MAX];
    let mut len = 0;
    while len < buffer.len() {
        match file.read_at(&mut buffer[len..], len as u64)? {
            0 => break,
            count => len += count,
        }
    }
    Ok(String::from_utf8_lossy(&buffer[..len]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        let env = Env::real();
        let memory = memory(&env).unwrap();
        assert!(memory.resident_bytes > 100_000 && memory.resident_bytes_max >= memory.resident_bytes);
        let before = processor_time(&env).unwrap();
        // Until the kernel has counted something: however fast the machine is, it will.
        let mut sum = 0_u64;
        while processor_time(&env).unwrap() == before {
            sum = (0..1_000_000).fold(sum, |sum, next| sum.wrapping_mul(31).wrapping_add(next));
        }
        let mut out = Exposition::default();
        write(&env, Duration::from_secs(1), &mut out);
        let text = out.finish();
        for name in ["process_open_fds", "process_max_fds", "process_cpu_seconds_total", "process_start_time_seconds"] {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() > 0.0, "{line} {sum}");
        }
    }
}
