package navtest

// rule is one thing that holds of every navigator.
type rule struct {
	// Of the subtest.
	name string
	// What holds, as a sentence.
	text string
	// Ends by trial.failf where it does not hold.
	check func(*trial)
}

// rules are all of them, in the order of the manual. Each has a file of its own, which says why it matters.
var rules = []rule{
	{"claims", "Claims always gives the same answer, to anything it is asked", checkClaims},
	{"ownership", "a plan touches only work that the navigator owns, and each capsule once", checkOwnership},
	{"capacity", "all proposals of one plan commit, one after another, on a ledger at that very view", checkCapacity},
	{"requirements", "a capsule is placed where all its requirements hold", checkRequirements},
	{"devices", "a capsule gets the device instances that it asks for, healthy ones with so much free", checkDevices},
	{"company", "a capsule that wants to be near a group is placed in a domain where the group is running", checkCompany},
	{"freshness", "a plan rests on the view that it is given, not on an earlier one", checkFreshness},
	{"priority", "of work that is alike the lower priority is not placed while the higher waits", checkPriority},
	{"identity", "an id is given to one proposal only", checkIdentity},
	{"holds", "a hold ends, in good time", checkHolds},
	{"context", "Plan ends when its context does, and what it returns then is sound and says so", checkContext},
	{"determinism", "equal navigators make equal plans of equal views", checkDeterminism},
	{"explanation", "every capsule handed over is placed, or explained, and not both", checkExplanation},
	{"read-only", "Plan leaves the slice, the capsules, the specs and the nodes as they were", checkReadOnly},
	{"conflict", "what was lost to somebody else is planned again, and what somebody else has placed is not", checkConflict},
	{"recovery", "room that is given back is used, and a capsule that comes back is placed again", checkRecovery},
	{"exhaustion", "a *NoFit is said only of what fits on no node", checkExhaustion},
	{"gangs", "a gang is placed whole, or at least its minimum, in one proposal, by whoever claims gangs alone", checkGangs},
	{"odd-worlds", "no constellation and no work makes it panic, fail or plan what cannot be", checkOddWorlds},
	{"liveness", "what fits easily is placed within a bound of passes", checkLiveness},
}
