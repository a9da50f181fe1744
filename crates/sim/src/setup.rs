//! What every program that tries the real binary asks for and makes before it begins.

use std::path::PathBuf;
use std::process::ExitCode;

use tempfile::TempDir;

use crate::blob::any_below;
use crate::process::program;

/// Arguments that they share.
#[derive(Debug, clap::Args)]
pub struct SetupArgs {
    /// Of what is random [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// The program to try [default: $MARGAY_BIN or target/release/margay]
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where the data goes [default: a new directory in the system's folder for such]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// What was made of them.
#[derive(Debug)]
pub struct Setup {
    pub binary: PathBuf,
    /// Removed at the end.
    pub folder: TempDir,
    pub seed: u64,
}

impl SetupArgs {
    /// Finds the program and makes the folder. What is missing is told on standard error.
    pub fn prepare(&self) -> Result<Setup, ExitCode> {
        let fail = |line: String| {
            eprintln!("{line}");
            ExitCode::from(2)
        };
        let binary = program(self.binary.clone()).map_err(fail)?;
        let folder = self.folder.as_ref().map_or_else(tempfile::tempdir, tempfile::tempdir_in);
        let folder =
            folder.map_err(|error| fail(format!("no folder for the data: {error}; choose another with --folder")))?;
        let seed = self.seed.unwrap_or_else(|| any_below(1_000_000));
        Ok(Setup { binary, folder, seed })
    }
}
