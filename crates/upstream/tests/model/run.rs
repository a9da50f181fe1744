//! One seed: what happens, in which order, and what must hold in the end.

#[path = "opened.rs"]
mod opened;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use margay_upstream::{Fsync, Opens};

use crate::chance::Chance;
use crate::machine::{Machine, Settings};
use crate::ops::{Habits, Op, PLACES, Tree};
use crate::oracle::{Oracle, Promise, files};
use crate::order::Order;
use crate::sim::{Fate, Sim, World};
use crate::store::{Object, Store};
use crate::uploads::Completes;

/// Decisions of a seed, before everything is to come to rest.
const DECISIONS: usize = 100;
/// Decisions until then.
const DECISIONS_MAX: usize = 20_000;
/// After a jump of this length uploads may have vanished.
const VANISHES_AFTER: Duration = Duration::from_secs(31);
const JUMPS: [Duration; 6] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(31),
    Duration::from_secs(61),
];

/// Between two things that users do, where files grow.
const STEP: Duration = Duration::from_millis(60);

struct Run {
    seed: u64,
    sim: Arc<Sim>,
    chance: Chance,
    machines: Vec<Machine>,
    /// One request of so many fails; 0: none does.
    fails_one_in: u64,
    lists_late: bool,
    uploads_vanish: bool,
    habits: Habits,
    /// What each mount asks before a file is opened.
    opens: [Opens; 2],
    /// Requests of each mount that get lost from now on.
    outage: [u64; 2],
    /// Another client changes the bucket.
    has_client: bool,
    number: u64,
}

/// What happened, so that runs of a seed can be compared.
pub(crate) type History = Vec<String>;

/// Runs a seed; an error is what was wrong, with what happened.
pub(crate) fn run(seed: u64) -> Result<History, String> {
    let mut run = Run::new(seed);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.all()));
    let wrong = match panicked {
        Ok(Ok(())) => run.sim.world().oracle.violations().first().cloned(),
        Ok(Err(wrong)) => Some(wrong),
        Err(_) => Some("a panic".to_owned()),
    };
    for machine in &mut run.machines {
        machine.end(false, seed);
    }
    let world = run.sim.world();
    let history = world.oracle.history();
    match wrong {
        None => Ok(history.to_vec()),
        Some(wrong) => Err(format!("{wrong}\nseed {seed}, {:?}:\n{}", world.oracle.promise, history.join("\n"))),
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut chance = Chance::by(seed);
        chance.below(2);
        let (is_weak, is_alone) = (chance.below(5) == 0, chance.below(3) == 0);
        let habits = Habits::by(&mut chance);
        let completes = chance.of(&[Completes::Honours, Completes::Honours, Completes::Ignores, Completes::Refuses]);
        let completes = if is_weak { Completes::Ignores } else { completes };
        let promise = match (is_weak || habits.has_long && completes != Completes::Honours, is_alone) {
            (_, true) => Promise::OneWriter,
            (true, false) => Promise::Whole,
            (false, false) => Promise::All,
        };
        let errors_in_bodies = chance.below(3) == 0;
        let mut store = Store { ignores_conditions: is_weak, errors_in_bodies, completes, ..Store::default() };
        let mut oracle = Oracle::new(promise);
        for (number, place) in PLACES.iter().enumerate() {
            if chance.below(if habits.grows { 4 } else { 2 }) == 0 {
                let object = object(habits, format!("in-{number:04}"), &mut chance);
                oracle.writes(&object.name);
                store.objects.insert((*place).to_owned(), object);
            }
        }
        oracle.look("begun", &store.objects);
        let fsyncs = [0, 1].map(|_| chance.of(&[Fsync::Upstream, Fsync::Upstream, Fsync::Local]));
        if promise == Promise::OneWriter && fsyncs[0] == Fsync::Local {
            oracle.order = Some(Order::new(files(&store.objects)));
        }
        let uploads_vanish = oracle.order.is_none() && chance.below(4) == 0;
        let sim = Sim::new(oracle, store);
        sim.world().probes_wait = chance.below(4) == 0;
        let settings = fsyncs.map(|fsync| {
            let opens = chance.of(&[Opens::Listed, Opens::Recent, Opens::Recent, Opens::Always]);
            Settings { fsync, opens, grows: habits.grows }
        });
        let machine = |number: usize| Machine::new(number, settings[number], &sim, seed + number as u64);
        let machines = (0..2).map(machine).collect();
        Run {
            seed,
            sim,
            opens: settings.map(|settings| settings.opens),
            fails_one_in: chance.of(&[0, 25, 8]),
            lists_late: chance.below(3) == 0,
            uploads_vanish,
            habits,
            outage: [0; 2],
            has_client: promise != Promise::OneWriter && chance.below(2) == 0,
            machines,
            chance,
            number: 0,
        }
    }

    fn all(&mut self) -> Result<(), String> {
        for _ in 0..DECISIONS {
            self.decide();
            self.check_broken()?;
            if !self.sim.world().oracle.violations().is_empty() {
                return Ok(());
            }
        }
        (self.fails_one_in, self.lists_late, self.uploads_vanish, self.outage) = (0, false, false, [0; 2]);
        self.sim.world().calms();
        self.settle()?;
        self.agree()
    }

    fn check_broken(&self) -> Result<(), String> {
        let mut running = self.machines.iter().filter(|machine| machine.is_running());
        let broken = running.find_map(|machine| machine.user().far.broken().map(str::to_owned));
        broken.map_or(Ok(()), Err)
    }

    /// Mounts again.
    fn begin_ended(&mut self) {
        self.sim.rest();
        for at in 0..2 {
            if !self.machines[at].is_running() {
                let seed = self.seed;
                self.machines[at].begin(seed);
                self.sim.tell(format!("m{at} begins"));
                self.sim.rest();
            }
        }
    }

    /// One step of the world.
    fn decide(&mut self) {
        self.begin_ended();
        let waiting = {
            let mut world = self.sim.world();
            world.sort();
            world.parked.len() as u64
        };
        match self.chance.below(100) {
            0..58 if waiting > 0 => self.arrive(waiting),
            58..84 => self.begin_op(),
            84..88 if self.has_client => self.change_by_client(),
            88..91 => self.end_one(),
            91..100 => self.jump(),
            _ if waiting > 0 => self.arrive(waiting),
            _ => self.begin_op(),
        }
    }

    fn jump(&mut self) {
        let length = self.chance.of(&JUMPS);
        self.sim.tell(format!("{length:?} later"));
        self.sim.advance(length);
        if self.uploads_vanish && length >= VANISHES_AFTER && self.chance.below(3) == 0 {
            self.sim.tell("uploads vanish".to_owned());
            self.sim.world().store.uploads.clear();
        }
        self.machines.iter().for_each(Machine::look);
    }

    fn end_one(&mut self) {
        let (at, without_power) = (self.chance.below(2) as usize, self.chance.below(2) == 0);
        self.sim.tell(format!("m{at} is ended, without power: {without_power}"));
        let seed = self.chance.below(u64::MAX);
        self.machines[at].end(without_power, seed);
        if self.fails_one_in > 0 && self.chance.below(3) == 0 {
            // The next process does not reach the bucket at once.
            self.outage[at] = 4 + self.chance.below(12);
        }
    }

    fn arrive(&mut self, waiting: u64) {
        let at = self.chance.below(waiting) as usize;
        let (mount, has_arrived) = {
            let world = self.sim.world();
            (world.parked[at].mount, world.parked[at].arrived)
        };
        let fate = self.fate(mount, has_arrived);
        let age = if self.lists_late { self.chance.below(4) as usize } else { 0 };
        self.sim.arrive(at, fate, age);
    }

    fn fate(&mut self, mount: usize, has_arrived: bool) -> Fate {
        if self.fails_one_in == 0 {
            return Fate::Answered;
        }
        if self.outage[mount] > 0 {
            self.outage[mount] -= 1;
            return self.chance.of(&[Fate::Lost, Fate::Lost, Fate::Busy, Fate::Unanswered]);
        }
        match self.chance.below(5 * self.fails_one_in) {
            // More than a request is tried.
            0 => self.outage[mount] = 8 + self.chance.below(12),
            1 => return Fate::Busy,
            2 if !has_arrived => return Fate::Repeated,
            3 => return Fate::Unanswered,
            4 if !has_arrived => return Fate::GivenUp,
            _ => return Fate::Answered,
        }
        self.chance.of(&[Fate::Lost, Fate::Unanswered])
    }

    fn name(&mut self, who: &str) -> String {
        self.number += 1;
        format!("{who}-{:04}", self.number)
    }

    fn begin_op(&mut self) {
        let at = self.chance.below(2) as usize;
        if self.habits.grows {
            // Who writes a large file takes his time.
            self.sim.advance(STEP);
            self.machines.iter().for_each(Machine::look);
            self.sim.rest();
        }
        let name = self.name(&format!("m{at}"));
        if self.machines[at].is_busy() {
            return;
        }
        let (writes, is_ordered, is_known) = {
            let oracle = &self.sim.world().oracle;
            let order = oracle.order.as_ref().filter(|_| at == 0);
            let writes = at == 0 || oracle.promise != Promise::OneWriter;
            (writes, order.is_some(), order.is_none_or(|order| order.is_known))
        };
        let (habits, chance, has_open) = (self.habits, &mut self.chance, self.machines[at].user().has_open());
        let op = match is_known {
            // The order of syncs is told of one file that is open.
            _ if is_ordered && has_open => habits.beside_open(name, chance),
            // What a crash has left is looked at first.
            false => Op::List,
            true if writes && habits.grows && chance.below(3) > 0 => habits.grow(name, chance),
            true => habits.op(writes, name, chance),
        };
        self.sim.tell(format!("m{at} begins {op:?}"));
        if let Op::Rename { from, to, .. } = &op {
            self.sim.world().renames(at, [from, to]);
        }
        self.machines[at].start(move |user| user.run(op));
    }

    /// Whoever puts an object or removes one replaces what is there.
    fn change_by_client(&mut self) {
        let key = self.chance.of(&PLACES);
        let name = self.name("cl");
        let object = (self.chance.below(3) > 0).then(|| object(self.habits, name, &mut self.chance));
        {
            let mut world = self.sim.world();
            let there = world.store.objects.get(key).map(|there| there.name.clone());
            there.iter().for_each(|there| world.oracle.supersedes(there));
            object.iter().for_each(|object| world.oracle.writes(&object.name));
        }
        let shown = object.as_ref().map(|object| object.name.clone());
        self.sim.change(format!("client: {key} is {shown:?}"), |objects| match object {
            Some(object) => drop(objects.insert(key.to_owned(), object)),
            None => drop(objects.remove(key)),
        });
    }

    /// Lets everything arrive until nothing is in progress.
    fn quiesce(&mut self) -> Result<(), String> {
        for _ in 0..DECISIONS_MAX {
            self.sim.rest();
            let waits = {
                let mut world = self.sim.world();
                world.sort();
                !world.parked.is_empty()
            };
            if waits {
                self.sim.arrive(0, Fate::Answered, 0);
            } else if self.machines.iter().any(Machine::is_busy) {
                self.jump();
            } else {
                return Ok(());
            }
        }
        Err(format!("it does not end: {}", self.details()))
    }

    /// What is to be sent.
    fn details(&self) -> String {
        let left = self.machines.iter().map(|machine| machine.user().far.details());
        left.collect::<Vec<_>>().join("\n")
    }

    /// Everything is sent.
    fn settle(&mut self) -> Result<(), String> {
        self.begin_ended();
        self.quiesce()?;
        for op in [Op::Close { syncs: false }, Op::Drain] {
            for machine in &self.machines {
                let op = op.clone();
                machine.start(move |user| user.run(op));
                self.sim.rest();
            }
            self.quiesce()?;
        }
        Ok(())
    }

    /// What a mount shows.
    fn shown(&mut self, at: usize) -> Result<Option<Tree>, String> {
        let found = Arc::new(Mutex::new(None));
        let into = Arc::clone(&found);
        self.machines[at].start(move |user| *into.lock().unwrap() = user.tree().ok());
        self.quiesce()?;
        Ok(found.lock().unwrap().take())
    }

    /// Both mounts and a new one show what the bucket has, and nothing is left over.
    fn agree(&mut self) -> Result<(), String> {
        for tries in 0.. {
            self.sim.advance(Duration::from_secs(62));
            self.machines.iter().for_each(Machine::look);
            self.quiesce()?;
            let there = self.in_bucket();
            let shown = [self.shown(0)?, self.shown(1)?];
            if shown.iter().all(|shown| shown.as_ref() == Some(&there)) && self.in_bucket() == there {
                break;
            }
            if tries >= 8 {
                let left = self.details();
                return Err(format!("they do not agree: mounts {shown:#?}, bucket {there:#?}, left {left}"));
            }
        }
        self.check_broken()?;
        for machine in &self.machines {
            let backlog = machine.user().far.backlog();
            if backlog.files != 0 {
                return Err(format!("left to be sent: {}", machine.user().far.details()));
            }
        }
        self.check_probe()?;
        let conflicts: Vec<String> =
            self.machines.iter().flat_map(|machine| machine.user().far.backlog().conflicts).collect();
        let is_alone = self.sim.world().oracle.promise == Promise::OneWriter;
        if is_alone && !conflicts.is_empty() {
            return Err(format!("nobody else writes, and there are conflicts: {conflicts:?}"));
        }
        {
            let mut world = self.sim.world();
            let World { store, oracle, .. } = &mut *world;
            oracle.nothing_is_left_over(&store.objects);
            oracle.ends();
        }
        match self.seed % 4 {
            // It costs as much as all before.
            0 => self.begin_anew(),
            1 | 2 => self.check_opens(),
            _ => Ok(()),
        }
    }

    /// A store that ignores conditions is known as such.
    fn check_probe(&self) -> Result<(), String> {
        let is_weak = self.sim.world().store.ignores_conditions;
        let honoured = self.machines.iter().filter_map(|machine| machine.user().far.honoured());
        match honoured.flatten().find(|(_, is_honoured)| *is_honoured && is_weak) {
            Some((condition, _)) => Err(format!("the store ignores conditions, and {condition} is relied on")),
            None => Ok(()),
        }
    }

    /// New processes remove what the old ones left, and a new cache shows the bucket.
    fn begin_anew(&mut self) -> Result<(), String> {
        for at in 0..2 {
            self.machines[at].end(false, self.seed);
            self.machines[at].begin(self.seed);
        }
        self.quiesce()?;
        let left: Vec<String> =
            self.sim.world().store.objects.keys().filter(|key| key.starts_with(".margay-tmp/")).cloned().collect();
        if !left.is_empty() {
            return Err(format!("temporary objects stay: {left:?}"));
        }
        let open = format!("{:?}", self.sim.world().store.open_uploads());
        if open != "[]" {
            return Err(format!("uploads stay open: {open}"));
        }
        self.machines[1].end(false, self.seed);
        let settings = Settings { fsync: Fsync::Upstream, opens: Opens::default(), grows: false };
        self.machines[1] = Machine::new(2, settings, &self.sim, self.seed + 2);
        self.machines[1].begin(self.seed);
        let (there, shown) = (self.in_bucket(), self.shown(1)?);
        if shown.as_ref() != Some(&there) {
            return Err(format!("a new mount shows {shown:#?}, the bucket has {there:#?}"));
        }
        let left = self.machines[1].user().far.backlog().files;
        if left == 0 { Ok(()) } else { Err(format!("{left} files that were only read are dirty")) }
    }

    /// Files of the bucket.
    fn in_bucket(&self) -> Tree {
        files(&self.sim.world().store.objects)
    }
}

/// What somebody else puts.
fn object(habits: Habits, name: String, chance: &mut Chance) -> Object {
    Object::new(habits.draft(name, chance).over(&[]).whole.into(), BTreeMap::new())
}
