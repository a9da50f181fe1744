//! The second proof before bytes leave: every row of one snapshot that can name a run.
//!
//! Why:        counters are kept by every operation, so one mistake in one of them makes live bytes look dead. This reads
//!             the rows themselves.
//! Invariants: K1 the snapshot is taken after the walk began, so after its segments were set aside and after the commits
//!                that moved or released their runs; it is durable.
//!             K2 a row that does not decode ends the walk: what it names is not known, so nothing is proven.
//!             K3 no run that the walk does not find can be named later: new owners come only from owners, and bytes that
//!                are not named yet are pinned, which keeps their segment from being settled.
//! Not here:   what is done with the proof (quarantine, punch, margay-segment).

use std::ops::ControlFlow;

use margay_segment::{Run, Walk};

use crate::api::Error;
use crate::key;
use crate::open::Volume;
use crate::record::data::{decode_extent_row, is_hole};
use crate::record::{Data, PartRecord, file_of_row};
use crate::rests::Rests;
use crate::seen::Seen;

impl Volume {
    /// Blocks this thread for as long as it takes to read every row that can name a run; about half of that is rest.
    pub(super) fn walk_named_runs(&self) -> Result<Walk, Error> {
        let mut walk = self.store.begin_walk();
        let frozen = self.frozen()?;
        let mut rests = Rests::new(&self.env.clock);
        frozen.each_named_run(|run| {
            if let Some(run) = run {
                walk.name(run);
            }
            rests.row();
        })?;
        walk.complete();
        Ok(walk)
    }

    /// Shows every run that some row names, as often as rows name it, and `None` for a row that names none.
    pub(crate) fn each_named_run(&self, mut show: impl FnMut(Option<&Run>)) -> Result<(), Error> {
        let mut seen = Seen::default();
        let mut show_data = |data: &Data| match data {
            Data::Inline(_) | Data::Rows => show(None),
            Data::Extents(extents) => {
                extents.iter().filter(|extent| !is_hole(extent)).for_each(|extent| show(Some(&extent.run)));
            }
        };
        for files in [key::all_entries(), key::all_inodes(), key::all_versions()] {
            self.scan(&files, &mut seen, |row| {
                if let Some(file) = file_of_row(row.value)? {
                    show_data(&file.data);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        self.scan(&key::all_parts(), &mut seen, |row| {
            show_data(&PartRecord::decode(row.value)?.data);
            Ok(ControlFlow::Continue(()))
        })?;
        self.scan(&key::all_extents(), &mut seen, |row| {
            let extent = decode_extent_row(row.value)?;
            show(Some(&extent.run).filter(|_| !is_hole(&extent)));
            Ok(ControlFlow::Continue(()))
        })
    }
}
