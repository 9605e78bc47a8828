package ledgertest

import "fmt"

// rule is one thing that holds of every ledger.
type rule struct {
	// Of the subtest.
	name string
	// Lines of SCENARIOS and invariants that it covers; empty: none.
	lines string
	// What holds, as a sentence.
	text string
	// What goes wrong without it.
	why string
	// Ends by trial.failf where it does not hold.
	check func(*trial)
}

// header is what is printed of a rule.
func (r *rule) header() string {
	s := fmt.Sprintf("rule: %s\nwhy:  %s", r.text, r.why)
	if r.lines != "" {
		s += "\nsee:  SCENARIOS " + r.lines
	}
	return s
}

// rules are all of them, in the order of the manual.
var rules = []rule{
	{"limits", "12 (I14)", "Limits are positive and the same everywhere; up to them input is taken, beyond them it is invalid",
		"a navigator plans within them; what is too large must not be found out half way", checkLimits},
	{"invalid", "11, 12, 25 (I6, I14)", "what is malformed is ErrInvalid, says which commitment, and changes nothing",
		"one hostile request must not touch anybody's books, or stop the ledger", checkInvalid},
	{"odd-ids", "(I2)", "an id is any text; none is taken for another, or for something of the ledger's own",
		"ids with a slash escape their prefix in a store", checkOddIDs},
	{"caller-keeps", "(I8)", "the ledger keeps nothing of a proposal's slices and maps, and writes to none",
		"the caller uses them again", checkKept},

	{"submit", "", "what is submitted reads back, waits in its order, and equal specs are one",
		"engines compute once for each class, and go by the order", checkSubmit},
	{"once", "1, 3 (I2, I4, I6, I8)", "a capsule is placed at most once; the loser is told why, and can see it",
		"two navigators place the same capsule", checkOnce},
	{"final", "20 (I15)", "what is released for good stays so, and its id is taken while the record is kept",
		"a cancel races with a commit", checkFinal},
	{"release", "10, 22 (I1, I5)", "a placement or a hold ends once; its room is free from then on",
		"a release races with an expiry, and undoes what came after it", checkRelease},
	{"terminal", "(I15)", "records of what was released for good are kept as Limits says, and then the id is free",
		"they grow without end, or a late proposal meets a new capsule under an old name", checkTerminal},
	{"owner", "(I4)", "Assign is a compare-and-swap of the owner",
		"a capsule that two engines own is planned twice", checkOwner},

	{"capacity", "9 (I1, I2)", "no node is over its capacity, one commit after another or within a proposal; holds count",
		"this is what a ledger is for", checkCapacity},
	{"dimensions", "9 (I1)", "each dimension is looked at, the importer's own too",
		"what is not compared is oversubscribed", checkDimensions},
	{"shrink", "13 (I1)", "capacity may shrink below use: nothing new is admitted, everything may leave",
		"a negative number of free cores is taken for many, or ends in a panic", checkShrink},
	{"wrap", "11 (I14)", "no sum wraps, however large the numbers",
		"used+want <= capacity holds for MaxInt64", checkWrap},
	{"holds", "9, 25 (I1, I5, I13)", "a hold counts at once, has an end, and is swapped for a place in one proposal",
		"room that is kept for somebody is given away", checkHolds},
	{"swap", "18, 21 (I10)", "room that a proposal frees is there for its own places, in either order",
		"preemption finds no room where it has just made some", checkSwap},
	{"devices", "26 (I1)", "each device instance is shared up to what it has; a place names as many as it asks for",
		"two capsules believe that the device is theirs", checkDevices},
	{"sick-device", "14 (I1)", "nothing is placed on a device that is lost; what runs there keeps its share",
		"a commit that was planned before the loss lands on it", checkSickDevice},
	{"requirements", "(I1)", "a node is a member, schedulable, and has the labels and devices that are required",
		"a careless navigator must not be able to ignore a drain", checkRequirements},
	{"gang", "15 (I3)", "a gang begins whole, or with every role's minimum; later it may fall short and be topped up",
		"half a gang keeps room and does no work", checkGang},
	{"gang-at-once", "15 (I3)", "a gang is submitted and placed in one proposal, by the same rule",
		"the members of a proposal that is refused must not stay behind", checkGangAtOnce},
	{"gang-full", "15 (I3)", "a gang as large as Limits allows is placed in one proposal, on as many nodes",
		"Limits is all that a navigator knows before it plans", checkGangFull},

	{"counters", "5 (I7)", "a node's two counters move with every change of theirs, to its revision, and only then",
		"strict bets rest on them", checkCounters},
	{"return", "5 (I7)", "a node or mark that comes back under its name is not the old one, to any bet",
		"an old bet is replayed on a new node", checkReturn},
	{"return-at-once", "5 (I7)", "the same within one proposal",
		"old and new share a revision with nothing else", checkReturnAtOnce},
	{"emptied", "6 (I2, I7)", "a node leaves when it is empty, and comes back empty; who races with that has a conflict",
		"what is left on a node that is gone counts for ever", checkEmptied},

	{"bets", "(I10)", "every kind of bet holds, or was lost to somebody, or never held",
		"a bet that is not judged is a promise broken later", checkBets},
	{"before", "(I10)", "bets are judged on the state before the proposal",
		"it could fulfil its bets by itself", checkBefore},
	{"marks", "27, 29 (I13)", "MarkAt makes a mark a lease: whoever has lost it cannot commit",
		"the lease is lost while its holder is healthy, and somebody else has it", checkMarks},
	{"receipt", "1, 3 (I8)", "a conflict says which bet, where, wanted against free, and who took it; the state it names can be read",
		"the loser plans again on a view that does not show why it lost", checkReceipt},
	{"kinds", "18 (I10)", "conflict: something that it rests on is newer than its view; else infeasible",
		"the alarm for navigators that repeat themselves rests on it", checkKinds},
	{"check", "16, 18 (I10)", "the ledger says what State.Check says at the same state, whatever is proposed",
		"planner and referee disagree, and the plan is refused for ever", checkAgrees},

	{"atomic", "2, 16 (I6)", "a proposal that fails at its k-th commitment changes nothing; mended, it is committed",
		"what is half applied is found by nobody", checkAtomic},
	{"twice-in-one", "(I4)", "what is named twice in one proposal is a mistake, unless it undoes itself",
		"the second one counts twice", checkTwiceInOne},
	{"resent", "4 (I12)", "a proposal that is sent again has one effect, and the same answer, through any handle",
		"the answer was lost, and the caller does what it must", checkResent},
	{"refused-id", "1, 19 (I11, I12)", "a proposal that was refused may be sent again, and is judged anew",
		"remembering what was refused makes it impossible for ever", checkRefusedID},
	{"no-id", "(I12)", "a proposal without an id is never taken for another",
		"all of them would be one", checkNoID},
	{"window", "4 (I12)", "ids are remembered for as many placements, and proposals, as Limits says",
		"a slow caller sends again what the ledger has forgotten", checkWindow},
	{"batch", "4 (I6, I12)", "proposals of a batch have outcomes of their own, as if they had come alone",
		"one that fails takes others down", checkBatch},
	{"batch-rivals", "3, 26 (I1, I4)", "proposals of one batch compete as others do",
		"what is judged together is judged on the same state", checkBatchRivals},
	{"batch-wide", "26 (I1)", "a batch of any size has an outcome for each, and the node is full and not fuller",
		"what a store cannot take at once must be cut, and not lost", checkBatchWide},

	{"history", "23 (I2, I8)", "Changes has every commit once, whole, in order, with its nodes, and nothing else",
		"everybody's view is made from it", checkHistory},
	{"following", "3, 6 (I2, I8)", "the state before and the changes since give the state now, for every handle",
		"a mirror that is wrong once stays wrong", checkFollowing},
	{"compaction", "(I8)", "the history is bounded: beyond it ErrCompacted, within it whole, never with a hole",
		"it grows until the process ends, or a reader misses a change and never knows", checkCompaction},
	{"snapshots", "8, 23 (I8)", "a state that was taken never changes",
		"a plan that reads two worlds fits neither", checkSnapshots},
	{"fresh", "1, 3 (I8)", "a snapshot is not older than any commit completed before, through any handle",
		"the loser of a conflict plans on the same view again", checkFresh},
	{"wait", "19 (I11)", "Wait returns at once what is newer, else with the next commit, else with its context",
		"whoever waits too long places too late; whoever never sleeps burns the machine", checkWait},
	{"wake-ups", "19 (I11)", "no wake-up is lost between looking and waiting",
		"everything stands still, and everything looks well", checkWakeUps},
	{"waiters", "19, 23 (I8, I11)", "readers that wait are woken up to the last commit, and miss none",
		"the last change of a busy time is the one that nobody hears of", checkWaiters},

	{"ended", "4 (I6)", "under a context that has ended nothing is sent, and nothing is judged",
		"an end that looks like a conflict is planned again, and placed twice", checkEnded},
	{"deadlines", "4 (I6, I12)", "a context that ends on the way leaves the outcome unknown, or nothing sent; sent again, one effect",
		"nine of ten commits that timed out had been applied", checkDeadlines},
	{"callbacks", "24 (I6, I16)", "whatever a caller's code does when it is called, the ledger goes on",
		"a callback that calls the ledger waits for itself", checkCallbacks},

	{"race-one", "3 (I4)", "of many that want one capsule at the same time one gets it, and the rest are told of a conflict",
		"check, then act: both have checked", checkRaceOne},
	{"race-room", "9, 10, 26 (I1, I11)", "of many that want the last room as many get it as fit, holds included, and no fewer",
		"check, then act: the last device is given twice", checkRaceRoom},
	{"race-gangs", "15, 17 (I3, I11)", "a gang is whole at every revision that anybody can read, and one of two gangs gets the room",
		"a reader sees half a gang; two halves wait for each other", checkRaceGangs},
	{"race-marks", "27 (I13)", "compare-and-swap on a mark loses no update",
		"two holders of one lease", checkRaceMarks},
	{"race-resent", "4 (I12)", "one proposal, sent by many at the same time, has one effect and one answer",
		"the first is still on its way when the second arrives", checkRaceResent},
	{"race-release", "20, 22 (I5, I15)", "of many that end the same thing one does",
		"room that is given back twice is room that is not there", checkRaceRelease},
	{"race-leave", "5, 6, 23 (I2, I7)", "a node leaves and comes back while others place on it; nothing is left behind",
		"a capsule on a node that is gone", checkRaceLeave},

	{"load", "all (I1 to I16)", "under a load of everything at once, the history and every answer are those of one ledger",
		"what nobody has thought of", checkLoad},
	{"load-faults", "2, 4 (I6, I11, I12)", "the same, with answers lost, calls lost, delays and panics between caller and ledger",
		"faults do not wait until the others are done", checkFaultyLoad},
}
