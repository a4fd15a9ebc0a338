//! Every reason that a condition of an HAGroup can have and every phrase of its STATUS column, with their meanings.

use bps_api::PAIR_KEEPER_BUSY;

use crate::status::words;
use crate::status::words::{AS_EXPECTED, ConditionWords, NOT_PAUSED, WITHHELD, Word};

pub(super) const PAIRED: Word = Word { word: "Paired", meaning: "Every pair has an active and a standby." };
pub(super) const NO_PAIRS: Word = Word {
    word: "NoPairs",
    meaning: "There is no pair yet: two running Pods with the label of the group are needed.",
};
pub(super) const UNPAIRED: Word =
    Word { word: "Unpaired", meaning: "A pair lacks its active or its standby." };
pub(super) const SILENT: Word = Word {
    word: "StandbySilent",
    meaning: "The standby of a pair does not answer its active: nobody follows if that fails. A spare takes its place.",
};
pub(super) const APPLICATION_ENDS: Word = Word {
    word: "CrashLooping",
    meaning: "The application of a pair ends again and again soon after its start: each start comes later.",
};
pub(super) const LATE_NODE: Word = Word {
    word: "LateNode",
    meaning: "The node of an active wakes its agent too late for the timing profile Fast: the pair has the times of Default.",
};
pub(super) const BLOCKED: Word = Word {
    word: "ReplicationBlocked",
    meaning: "The standby of a pair does not get the replicated state and would not take over.",
};
pub(super) const REFUSED: Word = Word { word: "Refused", meaning: "A write for the group was refused." };
pub(super) const UNREADABLE: Word = Word {
    word: "Unreadable",
    meaning: "This version of the operator does not understand a field of the spec; pairs stay as they are, failovers go on.",
};
pub(super) const KEEPER_BUSY: Word = Word {
    word: PAIR_KEEPER_BUSY,
    meaning: "Nobody acts in a pair: the only Pod with every acknowledged write acts in another one, and hands over there first.",
};
pub(super) const NO_LEVEL_COPY: Word = Word { word: "NoLevelCopy", meaning: WITHHELD.meaning };
pub(super) const PAUSED_BY_SPEC: Word =
    Word { word: "PausedBySpec", meaning: "Pairs stay as they are; failovers go on." };

pub(super) const PAUSED: Word = Word { word: "Paused", meaning: PAUSED_BY_SPEC.meaning };
pub(super) const DEGRADED: Word = Word { word: "Degraded", meaning: REFUSED.meaning };
pub(super) const WAITING_FOR_PODS: Word = Word { word: "Waiting for Pods", meaning: NO_PAIRS.meaning };
pub(super) const PAIRING: Word =
    Word { word: "Pairing", meaning: "Pairs are being formed, ended or given another member." };
pub(super) const WITHOUT_STANDBY: Word = Word { word: "Without standby", meaning: UNPAIRED.meaning };
pub(super) const STANDBY_SILENT: Word = Word { word: "Standby silent", meaning: SILENT.meaning };
pub(super) const REPLICATION_BLOCKED: Word = Word { word: "Replication blocked", meaning: BLOCKED.meaning };
pub(super) const CRASH_LOOPING: Word = Word { word: "Crash looping", meaning: APPLICATION_ENDS.meaning };
pub(super) const KEEPER_BUSY_STATE: Word = Word { word: "Keeper busy", meaning: KEEPER_BUSY.meaning };
pub(super) const READY: Word = Word { word: "Ready", meaning: PAIRED.meaning };

/// The conditions in the order of the status.
pub const GROUP_CONDITIONS: [ConditionWords; 4] = [
    ConditionWords {
        r#type: Word { word: words::READY, meaning: PAIRED.meaning },
        when_true: &[PAIRED],
        when_false: &[NO_PAIRS, APPLICATION_ENDS, UNPAIRED],
    },
    ConditionWords {
        r#type: Word { word: words::DEGRADED, meaning: "Something needs attention." },
        when_true: &[
            UNREADABLE,
            REFUSED,
            WITHHELD,
            KEEPER_BUSY,
            APPLICATION_ENDS,
            SILENT,
            BLOCKED,
            LATE_NODE,
        ],
        when_false: &[AS_EXPECTED],
    },
    ConditionWords { r#type: WITHHELD, when_true: &[NO_LEVEL_COPY], when_false: &[AS_EXPECTED] },
    ConditionWords {
        r#type: Word { word: words::PAUSED, meaning: "The operator leaves the pairs as they are." },
        when_true: &[PAUSED_BY_SPEC],
        when_false: &[NOT_PAUSED],
    },
];

/// The phrases of the STATUS column, most important first.
pub const GROUP_STATES: [Word; 11] = [
    PAUSED,
    DEGRADED,
    WITHHELD,
    KEEPER_BUSY_STATE,
    WAITING_FOR_PODS,
    PAIRING,
    CRASH_LOOPING,
    STANDBY_SILENT,
    REPLICATION_BLOCKED,
    WITHOUT_STANDBY,
    READY,
];
