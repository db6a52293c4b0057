//! The fault menu of the simulated disk: every kind, how often it strikes, how often it struck.

/// A way in which the disk fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A read moves fewer bytes than asked, a whole number of sectors.
    ShortRead,
    /// A write moves fewer bytes than asked, a whole number of sectors.
    ShortWrite,
    /// A transfer moves fewer bytes than asked, any number.
    Ragged,
    /// A transfer fails with EIO, once; a write leaves any of its sectors changed.
    Eio,
    /// A sector does not read any more: EIO until it is written again.
    BadSector,
    /// A transfer fails with EINTR and moves nothing.
    Eintr,
    /// A transfer fails with EAGAIN and moves nothing.
    Eagain,
    /// A transfer fails with ECANCELED and moves nothing.
    Ecanceled,
    /// A write fails with ENOSPC and moves nothing.
    Enospc,
    /// A submission is refused although there is room.
    Refusal,
    /// A sync fails with EIO. What it should have covered no later sync covers, although later ones succeed; some of it
    /// is gone at once.
    FailedSync,
    /// A write stores one bit wrong. Which one follows from the content, so that a retry meets the same.
    Flip,
    /// A write is acknowledged and never stored.
    LostWrite,
    /// A write is stored where another one was, and acknowledged.
    Misdirected,
    /// An operation does not complete for many polls.
    Straggler,
}

/// What users of a store may notice of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing but time.
    Masked,
    /// An error that is told at once: of an access for a read, poison for a write or a sync.
    Told,
    /// Nothing until the bytes are read: then an error that names them, and never the bytes.
    Damage,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Fault; 15] = [
        Fault::ShortRead,
        Fault::ShortWrite,
        Fault::Ragged,
        Fault::Eio,
        Fault::BadSector,
        Fault::Eintr,
        Fault::Eagain,
        Fault::Ecanceled,
        Fault::Enospc,
        Fault::Refusal,
        Fault::FailedSync,
        Fault::Flip,
        Fault::LostWrite,
        Fault::Misdirected,
        Fault::Straggler,
    ];

    /// In words, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::ShortRead => "short read",
            Fault::ShortWrite => "short write",
            Fault::Ragged => "ragged transfer",
            Fault::Eio => "EIO once",
            Fault::BadSector => "EIO sticky",
            Fault::Eintr => "EINTR",
            Fault::Eagain => "EAGAIN",
            Fault::Ecanceled => "ECANCELED",
            Fault::Enospc => "ENOSPC",
            Fault::Refusal => "queue refuses",
            Fault::FailedSync => "failed sync",
            Fault::Flip => "bit flip",
            Fault::LostWrite => "lost write",
            Fault::Misdirected => "misdirected write",
            Fault::Straggler => "straggler",
        }
    }

    /// What users may notice.
    pub fn effect(self) -> Effect {
        match self {
            Fault::Eio | Fault::BadSector | Fault::Enospc | Fault::FailedSync => Effect::Told,
            Fault::Flip | Fault::LostWrite | Fault::Misdirected => Effect::Damage,
            _ => Effect::Masked,
        }
    }
}

/// How often things go wrong, in thousandths of the operations concerned. See [`Fault`] for the meanings.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[allow(missing_docs, reason = "each field is the rate of the fault of its name")]
pub struct Faults {
    pub short_read: u32,
    pub short_write: u32,
    pub ragged: u32,
    pub eio: u32,
    pub bad_sector: u32,
    pub eintr: u32,
    pub eagain: u32,
    pub ecanceled: u32,
    pub enospc: u32,
    pub refusal: u32,
    pub failed_sync: u32,
    pub flip: u32,
    pub lost_write: u32,
    pub misdirected: u32,
    pub straggler: u32,
}

impl Faults {
    /// The rate of one kind.
    pub fn rate(mut self, fault: Fault) -> u32 {
        *self.rate_mut(fault)
    }

    /// The rate of one kind, to be changed.
    pub fn rate_mut(&mut self, fault: Fault) -> &mut u32 {
        match fault {
            Fault::ShortRead => &mut self.short_read,
            Fault::ShortWrite => &mut self.short_write,
            Fault::Ragged => &mut self.ragged,
            Fault::Eio => &mut self.eio,
            Fault::BadSector => &mut self.bad_sector,
            Fault::Eintr => &mut self.eintr,
            Fault::Eagain => &mut self.eagain,
            Fault::Ecanceled => &mut self.ecanceled,
            Fault::Enospc => &mut self.enospc,
            Fault::Refusal => &mut self.refusal,
            Fault::FailedSync => &mut self.failed_sync,
            Fault::Flip => &mut self.flip,
            Fault::LostWrite => &mut self.lost_write,
            Fault::Misdirected => &mut self.misdirected,
            Fault::Straggler => &mut self.straggler,
        }
    }
}

/// How often each kind struck.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts([u64; Fault::ALL.len()]);

impl Counts {
    /// Of one kind.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Of all kinds with an effect.
    pub fn with(&self, effect: Effect) -> u64 {
        Fault::ALL.into_iter().filter(|fault| fault.effect() == effect).map(|fault| self.of(fault)).sum()
    }

    /// One more.
    pub(super) fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// All of another's too.
    pub fn add(&mut self, other: &Counts) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }
}
