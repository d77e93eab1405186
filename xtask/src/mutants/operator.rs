//! Defines the mutation operators.

/// A systematic way to change a lifecycle file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MutationOperator {
    DropTransition,
    SwapTransitions,
    RetargetTransition,
    ChangeFromStates,
    WidenBy,
    SwapBy,
    DropGuard,
    NegateGuard,
    DropOperand,
    ShiftComparison,
    ShiftConstant,
    ChangeSign,
    ChangeName,
    DropRefusal,
    ChangeRefusalCode,
    DropSet,
    DropTransfer,
    ChangeTransfer,
    DropAction,
    ChangeAction,
    DropInput,
    DropBound,
    ShiftBound,
    DropConstraint,
    ChangeConstraint,
    MoveErrorCode,
    DoubleDuration,
    UnmarkState,
    RenameState,
    ChangeCaller,
    ShiftPayloadBound,
    DropAudit,
    DropSetting,
}

impl MutationOperator {
    pub(super) const ALL: [Self; 33] = [
        Self::DropTransition,
        Self::SwapTransitions,
        Self::RetargetTransition,
        Self::ChangeFromStates,
        Self::WidenBy,
        Self::SwapBy,
        Self::DropGuard,
        Self::NegateGuard,
        Self::DropOperand,
        Self::ShiftComparison,
        Self::ShiftConstant,
        Self::ChangeSign,
        Self::ChangeName,
        Self::DropRefusal,
        Self::ChangeRefusalCode,
        Self::DropSet,
        Self::DropTransfer,
        Self::ChangeTransfer,
        Self::DropAction,
        Self::ChangeAction,
        Self::DropInput,
        Self::DropBound,
        Self::ShiftBound,
        Self::DropConstraint,
        Self::ChangeConstraint,
        Self::MoveErrorCode,
        Self::DoubleDuration,
        Self::UnmarkState,
        Self::RenameState,
        Self::ChangeCaller,
        Self::ShiftPayloadBound,
        Self::DropAudit,
        Self::DropSetting,
    ];

    /// Returns the name used in tables and in mutants' names.
    pub(super) const fn label(self) -> &'static str {
        self.label_and_description().0
    }

    /// Returns the description for docs/mutants.md.
    pub(super) const fn description(self) -> &'static str {
        self.label_and_description().1
    }

    const fn label_and_description(self) -> (&'static str, &'static str) {
        match self {
            Self::DropTransition => ("drop a row", "one `[[on.…]]` goes"),
            Self::SwapTransitions => ("swap rows", "two neighbouring rows of one event change places"),
            Self::RetargetTransition => {
                ("retarget a row", "it leads to each other state in turn; a move becomes a stay, a stay a move")
            }
            Self::ChangeFromStates => ("change from-states", "one fewer, or one more, for each state"),
            Self::WidenBy => ("widen `by`", "`by` goes, so that any key that may write is let in"),
            Self::SwapBy => {
                ("swap `by`", "a name of it goes, or another that the file knows stands for it or beside it")
            }
            Self::DropGuard => ("drop a guard", "`when` goes"),
            Self::NegateGuard => ("negate a guard", "`when`, or the `if` of a refusal, says the opposite"),
            Self::DropOperand => ("drop a part", "one side of `&&` or `||` goes, in any expression"),
            Self::ShiftComparison => ("shift a comparison", "`<` becomes `<=`, `>` becomes `>=`, and back"),
            Self::ShiftConstant => {
                ("shift a constant", "a number in an expression is one more, or one less; 0.01 where it has a point")
            }
            Self::ChangeSign => (
                "change a sign",
                "`==` and `!=`, `+` and `-`, `*` and `/`, `min` and `max` change places; a `!` goes; the two branches of `?` change places",
            ),
            Self::ChangeName => {
                ("change a name", "`true` and `false`, names of a closed list change places; a text gets a letter more")
            }
            Self::DropRefusal => ("drop a refusal", "an entry of `refuse` goes"),
            Self::ChangeRefusalCode => {
                ("change an answer", "the code or the status of a refusal, of a clash or of `short` is another")
            }
            Self::DropSet => ("drop a set", "an entry of `set` goes"),
            Self::DropTransfer => ("drop a move", "an entry of `move` goes"),
            Self::ChangeTransfer => {
                ("change a move", "its direction turns, its amount is one more, one of its accounts is another")
            }
            Self::DropAction => ("drop a consequence", "an entry of `spawn`, `require`, `cascade` or `deliver` goes"),
            Self::ChangeAction => (
                "change a consequence",
                "its `if` goes or turns, one of its fields or inputs goes; `require` becomes `cascade` and back",
            ),
            Self::DropInput => ("drop an input", "a name of `take`, or an entry of `input`, goes"),
            Self::DropBound => {
                ("drop a bound", "`min`, `max`, `pattern` or a name of `enum` goes; `optional` comes or goes")
            }
            Self::ShiftBound => (
                "shift a bound",
                "`min`, `max`, `const` or `default` is one more, or one less (0.01 where it has a point, a byte where it is a size), or the opposite, or another text",
            ),
            Self::DropConstraint => {
                ("drop a key or limit", "an entry of `unique`, `limit` or `links` goes, or the natural key")
            }
            Self::ChangeConstraint => (
                "change a key or limit",
                "a field of `on` or a state of `in` goes, `in` or `per` goes, `max` is one more or one less",
            ),
            Self::MoveErrorCode => ("move an error code", "it leaves its list, or stands in the other"),
            Self::DoubleDuration => {
                ("stretch a time", "`lease`, `after`, `per` and every length in an expression is twice as long")
            }
            Self::UnmarkState => ("unmark a state", "`final`, `rest` or `ready` goes; `final` becomes `rest`"),
            Self::RenameState => ("rename a state", "where it is declared, and lawfully in the whole file"),
            Self::ChangeCaller => ("change a caller", "a reader goes, or anyone reads; a name of `[who]` is everybody"),
            Self::ShiftPayloadBound => {
                ("shift the payload", "its least or greatest size is one byte more or less, or goes")
            }
            Self::DropAudit => ("drop an audit", "the tag of a row or of a refusal goes, or is another"),
            Self::DropSetting => (
                "drop a setting",
                "`stop`, `priority`, `key`, `result`, `asset`, `outside`, `clock`, what a check asks, and the time of a timed row go",
            ),
        }
    }
}
