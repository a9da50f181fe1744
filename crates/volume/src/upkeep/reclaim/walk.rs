//! The second proof before bytes are removed: reads every row of one snapshot that can refer to a run.
//!
//! Why:        every operation maintains back rows, so one mistake makes live bytes look dead. This reads the rows that
//!             back rows are derived from.
//! Invariants: K1 the snapshot is durable and taken after the walk began, so after its segments were set aside and
//!                after the commits that moved or released their runs.
//!             K2 a row that does not decode ends the walk without a proof, because its references are unknown.
//!             K3 a run that the walk does not find gets no owner later: new owners come only from existing ones, and
//!                bytes without an owner yet are pinned, so their segment is not settled.
//! Not here:   the use of the proof (quarantine, punch, margay-segment).

use std::ops::ControlFlow;

use margay_rows::key::{self, Table};
use margay_rows::record::data::{decode_extent_row, is_hole};
use margay_rows::record::{Damaged, Data, PartRecord, file_of_row};
use margay_segment::{Run, Walk};

use super::gather::NamedRuns;
use crate::api::Error;
use crate::draft::Seen;
use crate::open::Volume;
use crate::rests::Rests;

impl Volume {
    /// Blocks this thread until every row that can refer to a run was read; about half of that time are pauses. `known`
    /// references count as found: where parts of a segment are removed, this walk includes both proofs.
    pub(super) fn walk_named_runs(&self, known: &NamedRuns) -> Result<Walk, Error> {
        let mut walk = self.store.begin_walk();
        known.values().for_each(|named| walk.name(&named.run));
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

    /// Calls `show` for every reference to a run, and with `None` for a row without one.
    pub(crate) fn each_named_run(&self, mut show: impl FnMut(Option<&Run>)) -> Result<(), Error> {
        let mut seen = Seen::default();
        for table in [key::all_entries(), key::all_inodes(), key::all_versions(), key::all_parts(), key::all_extents()]
        {
            self.scan(&table, &mut seen, |row| {
                runs_of_row(row.key, row.value, &mut show)?;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(())
    }
}

/// Calls `show` for the runs that a row of any table refers to, or with `None` if it could refer to one and does not.
pub(crate) fn runs_of_row(key: &[u8], value: &[u8], mut show: impl FnMut(Option<&Run>)) -> Result<(), Damaged> {
    let mut show_data = |data: &Data| match data {
        Data::Inline(_) | Data::Rows => show(None),
        Data::Extents(extents) => {
            extents.iter().filter(|extent| !is_hole(extent)).for_each(|extent| show(Some(&extent.run)));
        }
    };
    match Table::of(key) {
        Some(Table::Entry | Table::Inode | Table::Version) => {
            if let Some(file) = file_of_row(value)? {
                show_data(&file.data);
            }
        }
        Some(Table::Part) => show_data(&PartRecord::decode(value)?.data),
        Some(Table::Extent) => {
            let extent = decode_extent_row(value)?;
            show(Some(&extent.run).filter(|_| !is_hole(&extent)));
        }
        _ => {}
    }
    Ok(())
}
